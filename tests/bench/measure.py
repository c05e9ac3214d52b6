"""Time, peak memory and scratch space of a command: what the kernel counts for it and its children."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_EVERY = 0.02


@dataclass(frozen=True)
class Measured:
    """Seconds by the clock and of the processors, the largest process in MiB, and MiB of files beside the result."""

    wall: float
    cpu: float
    memory: int
    scratch: int


def run(command: Sequence[str | Path], scratch: Path, result: Path, environment: Mapping[str, str]) -> Measured:
    """Run ``command`` with its temporary files in ``scratch``; ``result`` is the directory of its result.

    A command that fails ends the measurement with what it said.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    result.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with (scratch / "output").open("w+") as output:
        variables = {**os.environ, **environment, "TMPDIR": str(scratch)}
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output, env=variables)
        with _Watch(process.pid, (scratch, result)) as watch:
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if process.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed:\n{output.read()}")
    left = sum(_sizes((result,)))
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10, max(0, watch.most - left) >> 20)


class _Watch:
    """Looks again and again how much lies in some directories and in files that have no name any more."""

    def __init__(self, pid: int, folders: Sequence[Path]) -> None:
        self.most = 0
        self._process = psutil.Process(pid)
        self._folders = folders
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_EVERY):
            with suppress(psutil.Error, OSError):
                processes = [self._process, *self._process.children(recursive=True)]
                self.most = max(self.most, sum(_sizes(self._folders)) + sum(map(_unnamed, processes)))


def _sizes(folders: Sequence[Path]) -> Iterator[int]:
    for folder in folders:
        for root, _, files in os.walk(folder):
            for name in files:
                with suppress(OSError):
                    yield os.lstat(os.path.join(root, name)).st_blocks * 512  # noqa: PTH118  often and quick


def _unnamed(process: psutil.Process) -> int:
    """Bytes of files that a process holds open and that were removed, or never had a name."""
    size = 0
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):
            if "(deleted)" in os.readlink(descriptor):  # noqa: PTH115  quick
                size += descriptor.stat().st_blocks * 512
    return size
