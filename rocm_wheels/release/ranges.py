"""One member of a zip archive on a web server, without the rest of it.

A wheel of 60 MB tells its commit in 300 bytes: the table at the archive's end and one member are fetched by HTTP range
requests. A server that does not answer those gives the whole file instead.
"""

from __future__ import annotations

import io
import tempfile
import urllib.request
import zipfile
from http import HTTPStatus
from typing import IO, Any

_BLOCK = 1 << 16


def read_member(url: str, name: str) -> bytes:
    """The content of member ``name`` of the archive at ``url``.

    Raises OSError for a server that does not answer, KeyError for a missing member, zipfile.BadZipFile.
    """
    with tempfile.TemporaryFile() as whole, zipfile.ZipFile(_open(url, whole)) as archive:
        return archive.read(name)


def _open(url: str, whole: IO[bytes]) -> IO[bytes]:
    """The archive as a file: read by ranges, or ``whole`` filled with all of it."""
    request = urllib.request.Request(url, headers={"Range": f"bytes=-{_BLOCK}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        if answer.status == HTTPStatus.PARTIAL_CONTENT:
            size = int(answer.headers["Content-Range"].rpartition("/")[2])
            return io.BufferedReader(_Remote(url, size), _BLOCK)
        while chunk := answer.read(_BLOCK):
            whole.write(chunk)
        whole.seek(0)
        return whole


class _Remote(io.RawIOBase):
    """A file of known size that is read by ranges."""

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        end = min(self._at + len(view), self._size)
        if end <= self._at:
            return 0
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={self._at}-{end - 1}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            data = answer.read(end - self._at)
        if answer.status != HTTPStatus.PARTIAL_CONTENT or len(data) != end - self._at:
            raise OSError(f"{self._url} answered a range with {len(data)} bytes")
        view[: len(data)] = data
        self._at = end
        return len(data)
