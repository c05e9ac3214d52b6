"""Deflates: bytes in one go, files piece by piece, and ranges that become part of an existing stream."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from isal import isal_zlib

from rocm_wheels.errors import NoSpace
from rocm_wheels.wheel.archive import DEFLATED, STORED, WheelArchive
from rocm_wheels.wheel.budget import WORKERS
from rocm_wheels.wheel.record import digest, encode_digest

_BLOCK = 4 << 20  # deflated by itself: some hundredths of a per cent longer than in one go
_LEVEL = 2  # isal's: within a few per cent of zlib 6 at several times its speed


@dataclass(frozen=True)
class Extent:
    """Bytes of an archive that stay as they are: offset in its file and length."""

    archive: WheelArchive
    offset: int
    size: int


Part = bytes | Path | Extent


@dataclass(frozen=True)
class Packed:
    """Content as it will lie in the archive; the stored bytes are those of ``parts``, one after another."""

    method: int
    crc: int
    size: int
    stored: int
    digest: str
    parts: tuple[Part, ...]


def pack(content: bytes) -> Packed:
    """Deflate ``content``; stored instead when that is no smaller. Runs beside other threads."""
    packed = isal_zlib.compress(content, _LEVEL, -15)
    method, body = (DEFLATED, packed) if len(packed) < len(content) else (STORED, content)
    return Packed(method, isal_zlib.crc32(content), len(content), len(body), digest(content), (body,))


def pack_file(source: Path, dest: Path) -> Packed:
    """Deflate the file ``source`` into ``dest``; see :func:`pack_pieces`."""
    with source.open("rb") as file:
        return pack_pieces(iter(lambda: file.read(_BLOCK), b""), dest)


def pack_pieces(pieces: Iterable[bytes | memoryview], dest: Path) -> Packed:
    """Deflate ``pieces`` as one content into ``dest``, in threads and blocks, so that memory does not grow with it.

    Raises :class:`NoSpace`.
    """
    sha, crc, size = hashlib.sha256(), 0, 0
    waiting: deque[Future[bytes]] = deque()
    try:
        with dest.open("wb") as out, ThreadPoolExecutor(WORKERS) as pool:
            for block, last in _blocks(pieces):
                waiting.append(pool.submit(deflate_range, block, last=last))
                sha.update(block)
                crc = isal_zlib.crc32(block, crc)
                size += len(block)
                if len(waiting) > 2 * WORKERS:
                    out.write(waiting.popleft().result())
            for packed in waiting:
                out.write(packed.result())
    except OSError as error:
        raise no_space(dest, error) from error
    return Packed(DEFLATED, crc, size, dest.stat().st_size, encode_digest(sha.digest()), (dest,))


def _blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[tuple[bytes, bool]]:
    """``pieces`` cut or joined to blocks of one size, each with whether it is the last; one block for no content."""
    block = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        while len(block) + len(view) > _BLOCK:
            room = _BLOCK - len(block)
            yield bytes(block + view[:room]), False
            block, view = bytearray(), view[room:]
        block += view
    yield bytes(block), True


def no_space(path: Path, error: OSError) -> NoSpace:
    """The error to raise when ``path`` cannot be written."""
    return NoSpace(f"{path} cannot be written: {error.strerror}", remedy="make room, or choose another --dest")


def deflate_range(content: bytes, *, last: bool) -> bytes:
    """Deflate blocks for ``content`` that refer to nothing before it and end on a byte boundary.

    The final block is among them only when they are the ``last`` of their stream.
    """
    stream = isal_zlib.compressobj(_LEVEL, wbits=-15)
    return bytes(stream.compress(content) + stream.flush(isal_zlib.Z_FINISH if last else isal_zlib.Z_SYNC_FLUSH))
