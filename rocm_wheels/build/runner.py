"""What every way of running build commands has in common."""

from __future__ import annotations

import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self

from rocm_wheels.build.process import STARTED
from rocm_wheels.errors import ContainerStartFailed, DeviceMissing


@dataclass(frozen=True)
class Mount:
    """A file or directory ``host`` that the command sees at ``container``."""

    host: Path
    container: str
    read_only: bool = False


@dataclass(frozen=True)
class Command:
    """What :meth:`Engine.run` was asked for."""

    image: str
    argv: Sequence[str]
    mounts: Sequence[Mount]
    env: Mapping[str, str]
    workdir: str
    devices: Sequence[str]
    host_network: bool
    may_mount: bool


class Engine(ABC):
    """Runs commands. A context manager: inside, SIGTERM ends like Ctrl-C, with everything stopped and removed."""

    name: str
    version: str

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handler
            self._stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _terminate))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        image: str,
        argv: Sequence[str],
        *,
        mounts: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
        workdir: str = "/",
        devices: Sequence[str] = (),
        host_network: bool = False,
        may_mount: bool = False,
        on_line: Callable[[str], None],
    ) -> int:
        """Run ``argv`` in ``image`` as the caller and return its exit code, 128 + n when signal n killed it.

        ``host_network`` lets the command reach servers on this machine's loopback, ``may_mount`` make a mount
        namespace of its own where it is root. Output goes line by line to ``on_line``. ``env`` is all that the command
        gets besides the image's own. Files that it makes under ``mounts`` belong to the caller. Raises
        :class:`ContainerStartFailed` or :class:`DeviceMissing` when the command was never started.
        """
        check_mounts(mounts)
        check_devices(devices)
        command = Command(image, argv, mounts, env or {}, workdir, devices, host_network, may_mount)
        return self._run(command, on_line)

    @abstractmethod
    def _run(self, command: Command, on_line: Callable[[str], None]) -> int:
        """Run a command whose mounts and devices exist; see :meth:`run`."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def after_start(head: list[str], on_line: Callable[[str], None]) -> Callable[[str], None]:
    """A line callback that keeps what comes before the command's own output in ``head``, STARTED included."""

    def handle(line: str) -> None:
        if head and head[-1] == STARTED:
            on_line(line)
        else:
            head.append(line)

    return handle


def check_mounts(mounts: Sequence[Mount]) -> None:
    """Raise :class:`ContainerStartFailed` for a mount that cannot be."""
    for mount in mounts:
        if not mount.host.exists():
            raise ContainerStartFailed(f"{mount.host}, to be mounted at {mount.container}, does not exist")
        if "," in f"{mount.host}{mount.container}":
            raise ContainerStartFailed(f"{mount.host} has a comma, which no engine can mount", remedy="rename it")


def check_devices(devices: Sequence[str]) -> None:
    """Raise :class:`DeviceMissing` for a ``host[:container]`` device that this machine does not have."""
    for device in devices:
        if not Path(device.partition(":")[0]).exists():
            raise DeviceMissing(
                f"{device} does not exist on this machine",
                remedy="load the driver (modprobe amdgpu); a build needs no GPU, only running kernels does",
            )
