"""Run a command and write down what it and all its children took: ``python measured.py FILE ARGV…``.

A program of its own, run inside the builder container, where no other package may be at hand. One line of JSON is
appended to FILE: core-seconds of all processes that ended, the largest memory of any one of them, seconds by the clock.
Ends with the command's exit code, 128 + n when signal n killed it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path


def main(file: str, argv: list[str]) -> int:
    """Run ``argv`` and return its exit code."""
    began = time.monotonic()
    code = subprocess.call(argv)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = {
        "core_seconds": round(used.ru_utime + used.ru_stime, 1),
        "seconds": round(time.monotonic() - began, 1),
        "largest_process": used.ru_maxrss * 1024,
    }
    with Path(file).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line, sort_keys=True) + "\n")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
