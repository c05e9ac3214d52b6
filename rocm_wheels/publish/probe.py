"""Ask a server whether it would take a big upload before the gigabytes are sent.

A request head with the true Content-Length and ``Expect: 100-continue`` is enough for nginx, waitress and devpi to
answer 413 or 401 at once. A server that says nothing within the timeout is given the benefit of the doubt.
"""

from __future__ import annotations

import http.client
import select
import ssl
from urllib.parse import urlsplit

import requests

from rocm_wheels.publish.target import Remote
from rocm_wheels.publish.upload import Answer

_PATIENCE = 3.0
_ROOM_FOR_FORM = 64 << 10


def probe(remote: Remote, size: int) -> Answer | None:
    """The refusal that an upload of ``size`` bytes would meet, or None when nothing speaks against it.

    Sends no body. Not possible through an HTTP proxy of this machine's own; then the answer is None.
    """
    url = remote.repository.url
    if requests.utils.get_environ_proxies(url):
        return None
    try:
        status = _ask(remote, url, size + _ROOM_FOR_FORM)
    except (OSError, http.client.HTTPException):
        return None  # whatever is wrong, the upload itself will find it and explain it
    if status in (401, 403, 413):
        return Answer(status, "asked before the upload", 0)
    return None


def _ask(remote: Remote, url: str, length: int) -> int | None:
    prepared = remote.repository.session.prepare_request(requests.Request("POST", url))
    connection = _connection(url, remote.repository.session.verify)
    try:
        connection.putrequest("POST", urlsplit(url).path or "/", skip_accept_encoding=True)
        headers = {
            "User-Agent": str(prepared.headers["User-Agent"]),
            "Content-Type": "multipart/form-data; boundary=probe",
            "Content-Length": str(length),
            "Expect": "100-continue",
        }
        if "Authorization" in prepared.headers:
            headers["Authorization"] = str(prepared.headers["Authorization"])
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        return _first_status(connection)
    finally:
        connection.close()


def _connection(url: str, verify: bool | str | None) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=10, context=context)


def _first_status(connection: http.client.HTTPConnection) -> int | None:
    """The status of the first line that comes, 100 included, or None when none comes in time."""
    readable, _, _ = select.select([connection.sock], [], [], _PATIENCE)
    if not readable:
        return None
    words = connection.sock.makefile("rb").readline(1000).split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None
