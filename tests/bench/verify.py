"""Static verify against inflating and hashing the same wheel once, each in a process of its own.

Example: nox -s bench -- verify torch-2.9.1.whl jax_rocm7_pjrt.whl
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_LIMIT_MB = 512
_LIMIT_FACTOR = 2.0


def main(argv: Sequence[str]) -> None:
    """Measure the wheels of ``argv`` and print a table; exit code 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(prog="nox -s bench -- verify", description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many runs counts")
    options = parser.parse_args(argv)
    print("| wheel | MB | inflate and hash, s | verify, s | factor | memory, MB |\n|---|---|---|---|---|---|")
    kept = True
    for wheel in options.wheels:
        floor = min(_run("inflate", wheel)[0] for _ in range(options.rounds))
        runs = [_run("verify", wheel) for _ in range(options.rounds)]
        seconds, memory = min(r[0] for r in runs), max(r[1] for r in runs)
        size = wheel.stat().st_size / 1e6
        print(
            f"| {wheel.name} | {size:.0f} | {floor:.1f} | {seconds:.1f} | {seconds / floor:.2f} | {memory:.0f} |",
            flush=True,
        )
        kept &= seconds < _LIMIT_FACTOR * floor and memory <= _LIMIT_MB
    raise SystemExit(0 if kept else 1)


def _run(what: str, wheel: Path) -> tuple[float, float]:
    """Seconds and peak memory in MB of one run in a fresh process."""
    command = [sys.executable, "-m", "tests.bench.verify", what, str(wheel)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, memory = done.stdout.split()
    return float(seconds), float(memory)


def _inflate(wheel: Path) -> None:
    from rocm_wheels.wheel import WheelArchive
    from rocm_wheels.wheel.inflate import inflate_each

    with WheelArchive.open(wheel) as archive:
        members = [m for m in archive.members if not m.is_directory]
        for _ in inflate_each(archive, members, lambda inflated: inflated.digest, hashed=True):
            pass


def _verify(wheel: Path) -> None:
    from rocm_wheels.console import Console
    from rocm_wheels.verify import VerifyOptions, verify

    verify([wheel], VerifyOptions(), Console(quiet=True))


def _child(what: str, wheel: Path) -> None:
    work: Callable[[Path], None] = {"inflate": _inflate, "verify": _verify}[what]
    start = time.monotonic()
    work(wheel)
    print(time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


if __name__ == "__main__":
    _child(sys.argv[1], Path(sys.argv[2]))
