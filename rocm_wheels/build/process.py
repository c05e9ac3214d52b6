"""One child process whose output is streamed, and the supervisor that ties a command's life to its parent's."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# PID 1 of a container: runs "$@" and ends with its exit code. Its first line, STARTED, tells "the command never ran"
# from the command's own 125, 126 or 127. Standard input is a pipe that the parent holds open and never writes to: when
# the parent dies, whatever the signal, `read` returns and everything goes (-1 is all but PID 1). Both outputs become
# one here, since an engine that carries them apart changes their order.
STARTED = "rocm-wheels: started"
SUPERVISOR = f"""
exec 3<&0 </dev/null
echo '{STARTED}'
"$@" 3<&- 2>&1 &
child=$!
trap 'kill -TERM "$child"; wait "$child"; exit 143' TERM INT
(read -r _ <&3; kill -TERM -1; sleep 5; kill -KILL -1) 2>/dev/null >&2 &
wait "$child"
"""


def reaped(argv: Sequence[str]) -> list[str]:
    """The argv that runs ``argv`` on this machine so that its process tree ends with us (see reaper.py)."""
    return [sys.executable, str(Path(__file__).with_name("reaper.py")), *argv]


class Streamed:
    """A client process in a session of its own, so that a Ctrl-C at the terminal reaches only us."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None = None) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
            cwd=cwd,
            start_new_session=True,
        )

    def stream(self, on_line: Callable[[str], None]) -> int:
        """Pass each line of output to ``on_line``, without its end; return the exit code (128 + signal if killed)."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            on_line(line.rstrip("\n"))
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def close(self, patience: float) -> None:
        """Close its standard input, give it ``patience`` seconds to end, then terminate and kill it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
                return
