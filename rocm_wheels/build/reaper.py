"""Run a command whose whole process tree ends when standard input closes: ``python reaper.py ARGV…``.

The caller holds the pipe and never writes: whatever kills it, the kernel closes its end. Ends with the command's exit
code, 128 + n when signal n killed it and 127 when there is no such command. A program of its own, not to be imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import psutil


def main(argv: list[str]) -> int:
    """Run ``argv`` and return its exit code."""
    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", flush=True)
        return 127
    threading.Thread(target=_end_at_eof, args=(child.pid,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _end_at_eof(pid: int) -> None:
    while os.read(0, 4096):
        pass
    try:
        process = psutil.Process(pid)
        tree = [process, *process.children(recursive=True)]  # before the first dies and its children are orphans
    except psutil.NoSuchProcess:
        return
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for member in tree:
            try:
                end(member)
            except psutil.NoSuchProcess:
                continue
        _, tree = psutil.wait_procs(tree, timeout=3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
