"""Real index servers on loopback for the publish tests, each stopped when its context ends."""

from __future__ import annotations

import base64
import contextlib
import http.client
import importlib.util
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.publish import publish


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
    for _ in range(1800):
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}:\n{log.read_text()}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer in 180 s:\n{log.read_text()}")


@contextlib.contextmanager
def pypiserver(folder: Path, *options: str, port: int = 0, engine: str = "auto") -> Iterator[Server]:
    """pypiserver with its files in ``folder/files``, open to all; ``options`` in the place of --disable-fallback.

    ``auto`` is waitress, which the test group installs.
    """
    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    url = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "-m", "pypiserver", "run", "-v", "-a", ".", "-P", ".", "-i", "127.0.0.1"]
    command += ["-p", str(port), "--server", engine, *(options or ["--disable-fallback"]), str(files)]
    with running(command, url, folder / "pypiserver.log"):
        yield Server(url, files, port)


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one upload on its way through :func:`faulty_proxy`."""

    kind: Literal["none", "cut", "drop-reply", "answer", "store-half"]
    after: int = 0
    status: int = 0
    text: str = ""


class FaultyProxy(ThreadingHTTPServer):
    """Forwards to an index; each upload takes the next fault of ``faults``, the last one for ever."""

    daemon_threads = True

    def __init__(self, upstream: Server, faults: Sequence[Fault]) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.upstream = upstream
        self.faults = list(faults)
        self.uploads = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def next_fault(self) -> Fault:
        self.uploads += 1
        return self.faults.pop(0) if len(self.faults) > 1 else self.faults[0]


class _Forward(BaseHTTPRequestHandler):
    server: FaultyProxy

    def do_GET(self) -> None:
        self._reply(*self._ask_upstream("GET", None))

    def do_POST(self) -> None:
        if "Expect" in self.headers:  # a question, not an upload
            self.close_connection = True
            return
        fault = self.server.next_fault()
        if fault.kind == "answer":
            self._drain(int(self.headers["Content-Length"]))
            self._reply(fault.status, {}, fault.text.encode())
            return
        if fault.kind == "cut":
            self._drain(fault.after)
            self._reset()
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self._ask_upstream("POST", body)
        if fault.kind == "store-half":
            for stored in self.server.upstream.files.iterdir():
                stored.write_bytes(stored.read_bytes()[: fault.after])
            self._reply(500, {}, b"server died")
        elif fault.kind == "drop-reply":
            self._reset()
        else:
            self._reply(*answer)

    def _ask_upstream(self, method: str, body: bytes | None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream.port, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
        try:
            connection.request(method, self.path, body, headers)
            response = connection.getresponse()
            kept = {k: v for k, v in response.getheaders() if k.lower() in ("content-type", "location")}
            return response.status, kept, response.read()
        finally:
            connection.close()

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _drain(self, size: int) -> None:
        while size > 0 and (piece := self.rfile.read(min(size, 1 << 16))):
            size -= len(piece)

    def _reset(self) -> None:
        """Close with a reset, as a crashed peer or a load balancer does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@contextlib.contextmanager
def faulty_proxy(upstream: Server, *faults: Fault) -> Iterator[FaultyProxy]:
    """A proxy in front of ``upstream`` that does wrong as told."""
    proxy = FaultyProxy(upstream, faults)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()


@contextlib.contextmanager
def nginx(folder: Path, location: str) -> Iterator[Server]:
    """nginx with one ``location /``, the body of which is given; everything it writes stays in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    temporary = "\n".join(
        f"  {kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; user root; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\n  access_log {folder}/access.log;\n{temporary}\n"
        f"  types {{ text/html html; application/vnd.pypi.simple.v1+json json; }}\n"
        f"  server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }}\n}}\n"
    )
    binary = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert binary, "call it only when nginx is there"
    url = f"http://127.0.0.1:{port}/"
    with running([binary, "-c", str(folder / "nginx.conf")], url, folder / "nginx.log"):
        yield Server(url, folder, port)


def has_nginx() -> bool:
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is not None


@contextlib.contextmanager
def devpi(folder: Path, *options: str) -> Iterator[Server]:
    """devpi-server with the user ``team``, password ``pass-of-team``, and its index ``team/dev``."""
    data = folder / "devpi"
    folder.mkdir(parents=True, exist_ok=True)
    scripts = Path(sys.executable).parent
    subprocess.run(
        [scripts / "devpi-init", "--serverdir", data, "--no-root-pypi"], check=True, capture_output=True, cwd=folder
    )
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = [str(scripts / "devpi-server"), "--serverdir", str(data), "--port", str(port), *options]
    with running(command, f"{base}/+api", folder / "devpi.log"):
        _put(f"{base}/team", {"password": "pass-of-team"}, "")
        _put(f"{base}/team/dev", {"bases": []}, _devpi_login(base))
        yield Server(f"{base}/team/dev/", data, port)


def _devpi_login(base: str) -> str:
    answer = _post_json("POST", f"{base}/+login", {"user": "team", "password": "pass-of-team"}, "")
    return base64.b64encode(f"team:{answer['result']['password']}".encode()).decode()


def _put(url: str, body: dict[str, object], token: str) -> None:
    _post_json("PUT", url, body, token)


def _post_json(method: str, url: str, body: dict[str, object], token: str) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if token:
        headers["X-Devpi-Auth"] = token
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[Server]:
    """An S3 by moto with the bucket ``wheels``, to be read at the same address."""
    import boto3

    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with running([sys.executable, "-m", "moto.server", "-p", str(port)], url, folder / "moto.log"):
        keys = {"aws_access_key_id": "team", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="wheels")
        yield Server(url, folder, port)


@contextlib.contextmanager
def rsyncd(folder: Path, *, password: str = "", read_only: bool = False) -> Iterator[Server]:
    """An rsync daemon with one module, ``wheels``, for the user ``team`` when there is a password."""
    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = ["use chroot = no", "[wheels]", f"path = {files}", f"read only = {'yes' if read_only else 'no'}"]
    lines += [f"uid = {os.getuid()}", f"gid = {os.getgid()}"]
    if password:
        secrets = folder / "secrets"
        secrets.write_text(f"team:{password}\n")
        secrets.chmod(0o600)
        lines += ["auth users = team", f"secrets file = {secrets}"]
    (folder / "rsyncd.conf").write_text("\n".join(lines) + "\n")
    command = ["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}"]
    command += [f"--config={folder / 'rsyncd.conf'}", f"--log-file={folder / 'rsyncd.log'}"]
    with (folder / "rsync.out").open("wb") as sink, subprocess.Popen(command, stdout=sink, stderr=sink) as daemon:
        try:
            wait_for_port(port)
            yield Server(f"rsync://team@127.0.0.1:{port}/wheels", files, port)
        finally:
            daemon.terminate()


def wait_for_port(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port} after 30 s")


@contextlib.contextmanager
def index_server(kind: str, folder: Path, wheels: Sequence[Path], settings: Settings) -> Iterator[str]:
    """The address for installers of a pypiserver, a devpi or a static directory behind nginx that holds ``wheels``."""
    console = Console(quiet=True)
    if kind == "nginx":
        if not has_nginx():
            pytest.skip("nginx is not installed (apt-get install nginx-light)")
        publish(wheels, f"dir:{folder / 'static'}", settings=settings, console=console)
        with nginx(folder / "nginx", f"root {folder / 'static'}; index index.html;") as server:
            yield f"{server.url}simple/"
    elif kind == "devpi":
        if importlib.util.find_spec("devpi_server") is None:
            pytest.skip("devpi-server is not installed (pip install devpi-server)")
        with devpi(folder / "devpi") as server:
            yield publish(wheels, server.url, settings=settings, console=console).index_url
    else:
        with pypiserver(folder / "server") as server:
            yield publish(wheels, server.url, settings=settings, console=console).index_url
