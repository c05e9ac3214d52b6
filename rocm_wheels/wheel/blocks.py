"""Walks a deflate stream block by block: where each begins, to the bit, and what it inflates to (RFC 1951).

zlib's inflate can stop at block boundaries (``Z_BLOCK``), which no Python binding offers; this calls the one inside
zlib-ng's extension module, which is the fastest that can. Its stream structure is that of zlib-ng's public header.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from zlib_ng import zlib_ng

from rocm_wheels.errors import BrokenArchive

_TAKE = 256 << 10
_GIVE = 1 << 20
_RAW = -15
_Z_BLOCK = 5
_OK, _STREAM_END, _BUF_ERROR = 0, 1, -5
_AT_BOUNDARY, _IN_LAST, _UNUSED_BITS = 128, 64, 7


class _Stream(ctypes.Structure):
    _fields_ = [
        ("next_in", ctypes.c_void_p),
        ("avail_in", ctypes.c_uint32),
        ("total_in", ctypes.c_size_t),
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint32),
        ("total_out", ctypes.c_size_t),
        ("msg", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p),
        ("zfree", ctypes.c_void_p),
        ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int),
        ("adler", ctypes.c_uint32),
        ("reserved", ctypes.c_ulong),
    ]


@dataclass(frozen=True)
class Piece:
    """Content from ``offset``. ``bit`` is where in the stream the block ends that ends with it; None inside a block.

    The ``last`` piece ends the stream.
    """

    offset: int
    data: bytes
    bit: int | None
    last: bool


@functools.cache
def _library() -> ctypes.CDLL | None:
    library = ctypes.CDLL(zlib_ng.__file__)
    try:
        for name in ("zng_inflateInit2", "zng_inflate"):
            getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.zng_inflateEnd.argtypes = [ctypes.c_void_p]
    except AttributeError:
        return None
    return library


def can_walk() -> bool:
    """Whether zlib-ng's own functions are to be seen in this build of its extension module."""
    return _library() is not None


def walk(read: Callable[[int, int], bytes], size: int, where: str) -> Iterator[Piece]:
    """The pieces of the raw deflate stream of ``size`` bytes that ``read(offset, size)`` gives, about a MiB at most.

    Raises :class:`BrokenArchive` that begins with ``where`` for one that is damaged, cut short, or followed by bytes.
    """
    library, stream = _library(), _Stream()
    address = ctypes.addressof(stream)
    if library is None or library.zng_inflateInit2(address, _RAW) != _OK:
        raise MemoryError("zlib-ng cannot start to inflate")
    try:
        yield from _pieces(library.zng_inflate, stream, read, size, where)
    finally:
        library.zng_inflateEnd(address)


def _pieces(
    inflate: Callable[[int, int], int], stream: _Stream, read: Callable[[int, int], bytes], size: int, where: str
) -> Iterator[Piece]:
    address = ctypes.addressof(stream)
    source, content = ctypes.create_string_buffer(_TAKE), ctypes.create_string_buffer(_GIVE)
    view = memoryview(content).cast("B")
    taken = given = 0
    status = _OK
    while status != _STREAM_END:
        if not stream.avail_in and taken < size:
            chunk = read(taken, min(_TAKE, size - taken))
            ctypes.memmove(source, chunk, len(chunk))
            stream.next_in, stream.avail_in = ctypes.addressof(source), len(chunk)
            taken += len(chunk)
        stream.next_out, stream.avail_out = ctypes.addressof(content), _GIVE
        before = stream.avail_in
        status = inflate(address, _Z_BLOCK)
        if status not in (_OK, _STREAM_END, _BUF_ERROR):
            raise BrokenArchive(f"{where} does not inflate: {(stream.msg or b'').decode()} near byte {stream.total_in}")
        count = _GIVE - stream.avail_out
        if status == _BUF_ERROR and not before and not count:
            raise BrokenArchive(f"{where}: its deflate stream has no end")
        ended = status == _STREAM_END or stream.data_type & (_AT_BOUNDARY | _IN_LAST) == _AT_BOUNDARY
        bit = 8 * stream.total_in - (stream.data_type & _UNUSED_BITS) if ended else None
        if count or bit is not None:
            yield Piece(given, view[:count].tobytes(), bit, status == _STREAM_END)
        given += count
    if stream.total_in != size:
        raise BrokenArchive(f"{where}: bytes follow its deflate stream")
