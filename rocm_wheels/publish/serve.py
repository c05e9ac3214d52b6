"""A quick look at a static index: one small web server, for this machine only unless told otherwise."""

from __future__ import annotations

import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rocm_wheels.console import Console
from rocm_wheels.errors import UsageError
from rocm_wheels.publish.index import SIMPLE, update_index

_JSON = "application/vnd.pypi.simple.v1+json"


def make_server(directory: Path, *, console: Console, host: str = "127.0.0.1", port: int = 8080) -> ThreadingHTTPServer:
    """Bring the index of ``directory`` up to date and bind a server to it; port 0 takes any free one.

    Raises :class:`UsageError` when the address is taken or is none of this machine's.
    """
    update_index(directory, console=console)
    try:
        return ThreadingHTTPServer((host, port), partial(_Handler, console=console, directory=str(directory)))
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound: {error.strerror}"
        raise UsageError(f"{host}:{port} {reason}", remedy="name another one: --port 0 takes any free one") from None


def serve(directory: Path, *, console: Console, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Serve ``directory`` until interrupted."""
    with make_server(directory, console=console, host=host, port=port) as server:
        console.line(f"• {directory} at http://{host}:{server.server_address[1]}/{SIMPLE}/ (Ctrl-C ends it)")
        server.serve_forever()


class _Handler(SimpleHTTPRequestHandler):
    """Static files, with the JSON page where a client asks for it (PEP 691)."""

    protocol_version = "HTTP/1.1"
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".json": _JSON, ".whl": "application/octet-stream"}

    def __init__(self, *args: Any, console: Console, **kwargs: Any) -> None:
        self._console = console
        super().__init__(*args, **kwargs)

    def send_head(self) -> Any:
        """Answer ``simple/…/`` with ``index.json`` when the client prefers it; hidden files are not handed out."""
        if any(part.startswith(".") for part in self.path.split("/")):
            self.send_error(404)
            return None
        if self.path.startswith(f"/{SIMPLE}/") and self.path.endswith("/") and _JSON in self.headers.get("Accept", ""):
            self.path += "index.json"
        return super().send_head()

    def log_message(self, format: str, *args: Any) -> None:
        """One line per request on the console."""
        self._console.line(f"  {self.address_string()} {format % args}")
