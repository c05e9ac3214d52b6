"""Who owns a container: a live process of this machine, or one that is gone and whose container may be removed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LABEL = "rocm-wheels.owner"


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one of the same number by its start time.

    ``boot`` and ``namespace`` say which process numbers these are: an engine's socket may be shared by containers or
    machines that count their own.
    """

    boot: str
    namespace: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(_boot(), _namespace(), os.getpid(), _started(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> Owner:
        """The owner that :meth:`__str__` wrote. Raises ``ValueError``."""
        boot, namespace, pid, started = text.split("/")
        return cls(boot, namespace, int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.started}"

    @property
    def is_dead(self) -> bool:
        """Certainly gone; False when this process cannot know."""
        if (self.boot, self.namespace) != (_boot(), _namespace()):
            return False
        return _started(self.pid) != self.started


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def _started(pid: int) -> int | None:
    """Start time in ticks after boot (proc(5), field 22), None without such a process. Zombies count as gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
