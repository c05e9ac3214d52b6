"""``--engine none``: build commands on this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence

from rocm_wheels.build.process import Streamed, reaped
from rocm_wheels.build.runner import Command, Engine, Mount
from rocm_wheels.console import Console
from rocm_wheels.errors import HostToolMissing


class HostEngine(Engine):
    """``--engine none``: the same commands on this machine, with its own ROCm, compilers and Pythons."""

    name = "none"
    version = ""
    LOSES = (
        "building on this machine itself: the result depends on its libraries and compilers, its glibc becomes the "
        "wheel's lowest glibc, and nothing keeps the build from reading or writing outside its tree"
    )

    def __init__(self, console: Console) -> None:
        console.warn(self.LOSES)

    def _run(self, command: Command, on_line: Callable[[str], None]) -> int:
        """``command.image`` is this machine, paths of the container become its own."""
        mounts = command.mounts
        argv = [self._on_host(word, mounts) for word in command.argv]
        clean = {key: value for key, value in os.environ.items() if key in ("USER", "LOGNAME", "TMPDIR", "LANG")}
        wanted = {key: self._on_host(value, mounts) for key, value in command.env.items()}
        path = os.pathsep.join(filter(None, (wanted.get("PATH", ""), os.environ.get("PATH", ""))))
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-home-") as home:
            full = {"HOME": home, **clean, **wanted, "PATH": path}
            process = Streamed(reaped(argv), full, self._on_host(command.workdir, mounts))
            try:
                return process.stream(on_line)
            finally:
                process.close(patience=8)

    @staticmethod
    def _on_host(text: str, mounts: Sequence[Mount]) -> str:
        """``text`` with the paths of a builder container replaced by what stands for them here."""
        for mount in sorted(mounts, key=lambda mount: len(mount.container), reverse=True):
            text = re.sub(rf"(?<![\w./-]){re.escape(mount.container)}(?=$|[/:;])", str(mount.host), text)
        text = re.sub(r"/opt/tools/bin/python\b", sys.executable, text)
        return re.sub(r"/opt/python/([\d.]+)/bin/python\b", lambda match: host_python(match[1]), text)


def host_python(version: str) -> str:
    """The path of CPython ``version`` on this machine. Raises :class:`HostToolMissing`."""
    found = shutil.which(f"python{version}")
    if found is None:
        raise HostToolMissing(f"no python{version} on PATH", remedy=f"install it, or build for {sys.version[:4]}")
    return found
