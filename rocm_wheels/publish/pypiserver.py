"""A pypiserver on this machine, for as long as a block runs: a real index where no other is at hand."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.errors import ServerUnreachable

_SECONDS = 20


@contextmanager
def running_pypiserver(storage: Path) -> Iterator[str]:
    """Serve ``storage`` on loopback, open for uploads; yields its address, such as ``http://127.0.0.1:4711/``.

    Raises :class:`ServerUnreachable` when it does not answer within 20 seconds.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "pypiserver", "run", "-i", "127.0.0.1", "-p", str(port), "-a", ".", "-P", "."]
    command.append("--disable-fallback")  # or it would answer for names that it does not have
    url = f"http://127.0.0.1:{port}/"
    with (storage.parent / f".{storage.name}.log").open("wb") as log:
        server = subprocess.Popen([*command, str(storage)], stdout=log, stderr=log)
        try:
            _wait(url, server)
            yield url
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.1)
    raise ServerUnreachable(f"pypiserver does not answer at {url}", remedy="is the pypiserver package installed here?")
