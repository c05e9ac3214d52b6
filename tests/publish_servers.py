"""Real index servers on loopback for the publish tests, each stopped when its context ends."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Server:
    """A running server: where uploads go and where it keeps files."""

    url: str
    files: Path
    port: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], url: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; ready when ``url`` answers anything."""
    with log.open("ab") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, cwd=log.parent)
    try:
        _wait_for(url, process, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}:\n{log.read_text()}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer in 30 s:\n{log.read_text()}")


@contextlib.contextmanager
def pypiserver(folder: Path, *options: str, open_to_all: bool = True, port: int = 0) -> Iterator[Server]:
    """pypiserver with its files in ``folder/files``; without a password unless ``open_to_all`` is False."""
    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    url = f"http://127.0.0.1:{port}/"
    access = ["-a", ".", "-P", "."] if open_to_all else []
    command = [sys.executable, "-m", "pypiserver", "run", "-p", str(port), "-i", "127.0.0.1", "--disable-fallback"]
    with running([*command, *access, *options, str(files)], url, folder / "pypiserver.log"):
        yield Server(url, files, port)
