"""Device code in host libraries: clang offload bundles in ``.hip_fatbin``, plain and compressed.

A section holds one bundle per translation unit, each starting on a 4 KiB boundary. The table of entries is enough for
coverage, so of a compressed bundle (``CCOB``) only the head is inflated. Layouts: LLVM's ClangOffloadBundler
documentation and the bundles of published ROCm wheels (versions 1 to 3).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import zstandard

from rocm_wheels.elf.reader import EM_AMDGPU, ElfFile
from rocm_wheels.errors import BrokenBundle

SECTION = ".hip_fatbin"
WRAPPERS = ".hipFatBinSegment"

_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
_PAGE = 4096
_WRAPPER_SIZE = 24
_HEAD = struct.Struct("<4sHH")
_ENTRY = struct.Struct("<QQQ")
_MOST_ENTRIES = 1024
_MOST_NAME = 256

# The processor in e_flags of a code object (LLVM AMDGPU usage guide, EF_AMDGPU_MACH).
_EF_AMDGPU_MACH = 0xFF


@dataclass(frozen=True)
class Entry:
    """One code object: ``target`` as clang writes it, offset inside the (inflated) bundle and size in bytes."""

    target: str
    offset: int
    size: int

    @property
    def arch(self) -> str | None:
        """The GPU target, such as ``gfx90a:xnack-``; None for the host's entry."""
        kind, _, rest = self.target.partition("-")
        if kind not in ("hip", "hipv4"):
            return None
        return rest.rpartition("--")[2] or None


@dataclass(frozen=True)
class Bundle:
    """One offload bundle: offset and stored size in the section, inflated size, compression and entries."""

    offset: int
    size: int
    inflated_size: int
    compression: str
    entries: tuple[Entry, ...]

    @property
    def archs(self) -> frozenset[str]:
        """GPU targets for which this bundle has code."""
        return frozenset(e.arch for e in self.entries if e.arch and e.size)


def read_bundles(elf: ElfFile) -> tuple[Bundle, ...]:
    """All bundles of ``elf`` in order; empty when it has no device code.

    Raises :class:`BrokenBundle` when the section cannot be walked to its end or when the number of bundles is not
    that of the wrappers in ``.hipFatBinSegment``.
    """
    data = elf.section_bytes(SECTION)
    bundles = []
    offset = 0
    while offset < len(data):
        if not any(data[offset : offset + 64]):  # padding: zeros up to the next page that holds something
            offset = _next_page(offset)
            continue
        bundle = _read_bundle(data, offset, elf.name)
        bundles.append(bundle)
        offset = -(-(offset + bundle.size) // _PAGE) * _PAGE
    _check_wrappers(elf, len(bundles))
    return tuple(bundles)


def archs(elf: ElfFile) -> frozenset[str]:
    """GPU targets that *every* bundle has code for: a kernel may come from any of them."""
    bundles = read_bundles(elf)
    return frozenset.intersection(*(b.archs for b in bundles)) if bundles else frozenset()


def code_object(elf: ElfFile, bundle: Bundle, entry: Entry) -> bytes:
    """The bytes of one code object, inflated if need be."""
    data = elf.section_bytes(SECTION)[bundle.offset : bundle.offset + bundle.size]
    whole = _inflate_all(data, elf.name) if bundle.compression != "none" else bytes(data)
    return whole[entry.offset : entry.offset + entry.size]


def processor_flags(code: bytes, name: str) -> int:
    """The EF_AMDGPU_MACH number that a code object carries; raises for anything but an AMDGPU ELF."""
    elf = ElfFile.parse(code, name)
    if elf.machine != EM_AMDGPU:
        raise BrokenBundle(f"{name}: a code object for machine {elf.machine}, {EM_AMDGPU} (AMDGPU) expected")
    return int(elf.flags) & _EF_AMDGPU_MACH


def _next_page(offset: int) -> int:
    return (offset // _PAGE + 1) * _PAGE


def _check_wrappers(elf: ElfFile, count: int) -> None:
    section = elf.section(WRAPPERS)
    if section is not None and count and section.size != count * _WRAPPER_SIZE:
        raise BrokenBundle(
            f"{elf.name}: {count} offload bundles in {SECTION}, but {section.size / _WRAPPER_SIZE:g} wrappers"
        )


def _read_bundle(data: memoryview, offset: int, name: str) -> Bundle:
    head = bytes(data[offset : offset + len(_MAGIC)])
    if head == _MAGIC:
        entries = _entries(data[offset:], name, offset)
        size = max((e.offset + e.size for e in entries), default=len(_MAGIC) + 8)
        if offset + size > len(data):
            raise BrokenBundle(f"{name}: the bundle at {offset:#x} of {SECTION} ends past the section")
        return Bundle(offset, size, size, "none", entries)
    if head[:4] == _COMPRESSED:
        return _read_compressed(data, offset, name)
    raise BrokenBundle(f"{name}: neither a bundle nor padding at {offset:#x} of {SECTION}")


def _entries(data: memoryview, name: str, where: int) -> tuple[Entry, ...]:
    try:
        (count,) = struct.unpack_from("<Q", data, len(_MAGIC))
        if count > _MOST_ENTRIES:
            raise BrokenBundle(f"{name}: the bundle at {where:#x} claims {count} entries")
        position = len(_MAGIC) + 8
        found = []
        for _ in range(count):
            offset, size, length = _ENTRY.unpack_from(data, position)
            position += _ENTRY.size
            target = bytes(data[position : position + length])
            if length > _MOST_NAME or len(target) != length:
                raise BrokenBundle(f"{name}: the bundle at {where:#x} has a target name of {length} bytes")
            position += length
            found.append(Entry(target.decode("ascii"), offset, size))
    except (struct.error, UnicodeDecodeError) as error:
        raise BrokenBundle(f"{name}: the table of the bundle at {where:#x} is damaged: {error}") from error
    return tuple(found)


@dataclass(frozen=True)
class _Header:
    """Head of a compressed bundle; ``size`` is 0 where the version does not store it."""

    length: int
    method: str
    size: int
    inflated_size: int


def _header(data: memoryview, offset: int, name: str) -> _Header:
    try:
        _, version, method = _HEAD.unpack_from(data, offset)
        if version == 1:
            (inflated,) = struct.unpack_from("<I", data, offset + 8)
            size, length = 0, 20
        elif version == 2:
            size, inflated = struct.unpack_from("<II", data, offset + 8)
            length = 24
        elif version == 3:
            size, inflated = struct.unpack_from("<QQ", data, offset + 8)
            length = 32
        else:
            raise BrokenBundle(f"{name}: compressed bundle at {offset:#x} of unknown version {version}")
    except struct.error as error:
        raise BrokenBundle(f"{name}: the compressed bundle at {offset:#x} has no whole head") from error
    if method not in (0, 1):
        raise BrokenBundle(f"{name}: compressed bundle at {offset:#x} uses unknown method {method}")
    return _Header(length, "zstd" if method else "zlib", size, inflated)


def _read_compressed(data: memoryview, offset: int, name: str) -> Bundle:
    header = _header(data, offset, name)
    size = header.size or header.length + _stored_size(data[offset + header.length :], header, name)
    if size < header.length or offset + size > len(data):
        raise BrokenBundle(f"{name}: the compressed bundle at {offset:#x} ends past the section")
    body = data[offset + header.length : offset + size]
    table = memoryview(_inflate(body, header, name, most=64 * 1024))
    if bytes(table[: len(_MAGIC)]) != _MAGIC:
        raise BrokenBundle(f"{name}: the compressed bundle at {offset:#x} holds no bundle")
    entries = _entries(table, name, offset)
    if any(e.offset + e.size > header.inflated_size for e in entries):
        raise BrokenBundle(f"{name}: the bundle at {offset:#x} has entries past its inflated size")
    return Bundle(offset, size, header.inflated_size, header.method, entries)


def _stored_size(body: memoryview, header: _Header, name: str) -> int:
    """Version 1 has no total length: inflate to find where the stream ends."""
    stream: Any = zlib.decompressobj() if header.method == "zlib" else zstandard.ZstdDecompressor().decompressobj()
    try:
        stream.decompress(body)
        return len(body) - len(stream.unused_data)
    except (zlib.error, zstandard.ZstdError) as error:
        raise BrokenBundle(f"{name}: a compressed bundle is damaged: {error}") from error


def _inflate(body: memoryview, header: _Header, name: str, *, most: int) -> bytes:
    """The first ``most`` bytes of the content."""
    try:
        if header.method == "zlib":
            return zlib.decompressobj().decompress(body, most)
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            return reader.read(most)
    except (zlib.error, zstandard.ZstdError) as error:
        raise BrokenBundle(f"{name}: a compressed bundle is damaged: {error}") from error


def _inflate_all(data: memoryview, name: str) -> bytes:
    header = _header(data, 0, name)
    return _inflate(data[header.length :], header, name, most=header.inflated_size)
