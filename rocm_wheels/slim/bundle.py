"""Makes a clang offload bundle anew with fewer code objects, each byte for byte as it was.

Layout: LLVM's ClangOffloadBundler documentation. A compressed bundle is compressed again in the version and method that
it had, so the runtime that read the old one reads the new one.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Collection, Sequence

import zstandard

from rocm_wheels.elf.offload import Bundle, Entry

_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_ENTRY = struct.Struct("<QQQ")
_ALIGN = 4096  # clang aligns the code objects of HIP so that the runtime may map them in place
_ZSTD_LEVEL = 12


def rebundle(plain: bytes, bundle: Bundle, archs: Collection[str]) -> bytes:
    """``plain``, the inflated form of ``bundle``, with the host's entry and the code objects for ``archs`` only."""
    kept = [entry for entry in bundle.entries if entry.arch is None or entry.arch in archs]
    position = len(_MAGIC) + 8 + sum(_ENTRY.size + len(entry.target) for entry in kept)
    table, body = [_MAGIC, struct.pack("<Q", len(kept))], []
    for entry in kept:
        padding = -position % _alignment(bundle.entries)
        code = plain[entry.offset : entry.offset + entry.size]
        table.append(_ENTRY.pack(position + padding, entry.size, len(entry.target)) + entry.target.encode("ascii"))
        if code:
            body += [bytes(padding), code]
            position += padding + len(code)
    return b"".join((*table, *body))


def _alignment(entries: Sequence[Entry]) -> int:
    return _ALIGN if all(entry.offset % _ALIGN == 0 for entry in entries if entry.size) else 1


def compress(plain: bytes, version: int, method: str) -> bytes:
    """A compressed bundle (``CCOB``) of a ``version`` that clang has written; ``method`` is zlib or zstd."""
    packed = zlib.compress(plain, 9) if method == "zlib" else _zstd(plain)
    check = hashlib.md5(plain, usedforsecurity=False).digest()[:8]
    head = struct.pack("<4sHH", b"CCOB", version, int(method == "zstd"))
    layout = {1: "<I", 2: "<II", 3: "<QQ"}[version]
    length = len(head) + struct.calcsize(layout) + len(check) + len(packed)
    sizes = (len(plain),) if version == 1 else (length, len(plain))
    return head + struct.pack(layout, *sizes) + check + packed


def _zstd(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=True).compress(plain)


def version_of(stored: bytes | memoryview) -> int:
    """The version of a stored bundle; 0 for a plain one."""
    return struct.unpack_from("<H", stored, 4)[0] if bytes(stored[:4]) == b"CCOB" else 0
