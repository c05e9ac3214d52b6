"""Device code in host libraries: clang offload bundles in ``.hip_fatbin``, plain and compressed.

A section holds one bundle per translation unit, each starting on a 4 KiB boundary. The table of entries is enough for
coverage, so of a compressed bundle (``CCOB``) only the head is inflated, and files are read window by window. Layouts:
LLVM's ClangOffloadBundler documentation and the bundles of published ROCm wheels (versions 1 to 3).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zstandard

from rocm_wheels.elf.processors import same_target, target_of
from rocm_wheels.elf.reader import EM_AMDGPU, SHT_NOBITS, ElfFile, Section
from rocm_wheels.errors import BrokenBundle

SECTION = ".hip_fatbin"
WRAPPERS = ".hipFatBinSegment"
EMBEDDED = ".rodata"
# AMD's kpack splitting moves device code to .kpack archives and leaves this marker (ROCm/rocm-systems, rocm-kpack).
SPLIT_MARKER = ".rocm_kpack_ref"

_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED = b"CCOB"
_PAGE = 4096
_WRAPPER_SIZE = 24
_SPLIT_MAGIC = b"HIPK"  # 0x4B504948 where clang writes 0x48495046
_HEAD = struct.Struct("<4sHH")
_ENTRY = struct.Struct("<QQQ")
_MOST_ENTRIES = 1024
_MOST_NAME = 256
_TABLE = 64 << 10
_WINDOW = 512 << 10
_ELF_HEADER = 64
# What follows the magic of a bundle that other code carries as data: a count and a first entry that can be true.
_TABLE_START = re.compile(rb"[\x01-\xff].\0{6}.{16}.\0{7}(?=host-|hip|openmp-)", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """One code object: ``target`` as clang writes it, offset inside the (inflated) bundle and size in bytes.

    ``flagged`` is the target by the code object's own ELF header; "" where that lies beyond the head of a compressed
    bundle, or is none (LLVM bitcode, SPIR-V), or names a processor that is not known.
    """

    target: str
    offset: int
    size: int
    flagged: str = ""

    @property
    def arch(self) -> str | None:
        """The GPU target, such as ``gfx90a:xnack-``; None for the host's entry."""
        kind, _, rest = self.target.partition("-")
        if kind not in ("hip", "hipv4"):
            return None
        return rest.rpartition("--")[2] or None

    @property
    def is_true(self) -> bool:
        """Whether the code object is for the target that the table declares, as far as can be told."""
        return not self.flagged or self.arch is None or same_target(self.arch, self.flagged)


@dataclass(frozen=True)
class Bundle:
    """One offload bundle: offset and stored size in its section, inflated size, compression and entries."""

    offset: int
    size: int
    inflated_size: int
    compression: str
    entries: tuple[Entry, ...]
    section: str = SECTION

    @property
    def archs(self) -> frozenset[str]:
        """GPU targets for which this bundle has code."""
        return frozenset(e.arch for e in self.entries if e.arch and e.size)


def read_bundles(elf: ElfFile) -> tuple[Bundle, ...]:
    """All bundles of ``elf`` in order; empty when it has no device code.

    Raises :class:`BrokenBundle` when the section cannot be walked to its end or when the bundles are not those that the
    wrappers in ``.hipFatBinSegment`` lead to.
    """
    window = _Window.of(elf, SECTION)
    bundles = []
    offset = 0
    while offset < window.size:
        if not any(window.read(offset, 64)):  # padding: zeros up to the next page that holds something
            offset = _next_page(offset)
            continue
        bundle = _read_bundle(window, offset)
        bundles.append(bundle)
        offset = -(-(offset + bundle.size) // _PAGE) * _PAGE
    _check_wrappers(elf, len(bundles))
    return tuple(bundles)


def embedded_bundles(elf: ElfFile) -> tuple[Bundle, ...]:
    """Plain bundles among the constants, which a framework loads by itself (TensorFlow's kernels).

    The magic alone proves nothing, comgr and the HIP runtime have it as a string: only what reads as a whole bundle
    with code for a GPU counts.
    """
    window = _Window.of(elf, EMBEDDED)
    found: list[Bundle] = []
    end = 0
    for offset in window.find(_MAGIC):
        if offset < end or not _TABLE_START.match(window.read(offset + len(_MAGIC), 64)):
            continue
        try:
            bundle = _read_bundle(window, offset)
        except BrokenBundle:
            continue
        if bundle.archs:
            found.append(bundle)
            end = offset + bundle.size
    return tuple(found)


def is_split(elf: ElfFile) -> bool:
    """Whether the device code was moved out of this library into .kpack archives."""
    return elf.section(SPLIT_MARKER) is not None or _wrapper_magic(elf) == _SPLIT_MAGIC


def archs(elf: ElfFile) -> frozenset[str]:
    """GPU targets that *every* bundle has code for: a kernel may come from any of them."""
    bundles = read_bundles(elf)
    return frozenset.intersection(*(b.archs for b in bundles)) if bundles else frozenset()


def code_object(elf: ElfFile, bundle: Bundle, entry: Entry) -> bytes:
    """The bytes of one code object, inflated if need be."""
    if bundle.compression == "none":
        return _Window.of(elf, bundle.section).read(bundle.offset + entry.offset, entry.size)
    return inflated(elf, bundle)[entry.offset : entry.offset + entry.size]


def inflated(elf: ElfFile, bundle: Bundle) -> bytes:
    """The plain form of ``bundle``: its table and its code objects."""
    data = _Window.of(elf, bundle.section).read(bundle.offset, bundle.size)
    if bundle.compression == "none":
        return data
    header = _header(data, bundle.offset, elf.name)
    return _inflate(data[header.length :], header, elf.name, most=header.inflated_size)


@dataclass(frozen=True)
class _Window:
    """A section read piece by piece; offsets count from its start. What lies past its end reads as nothing."""

    elf: ElfFile
    section: Section | None

    @classmethod
    def of(cls, elf: ElfFile, name: str) -> _Window:
        section = elf.section(name)
        return cls(elf, None if section is None or section.type == SHT_NOBITS else section)

    @property
    def size(self) -> int:
        return self.section.size if self.section else 0

    @property
    def where(self) -> str:
        return self.section.name if self.section else ""

    def read(self, offset: int, size: int) -> bytes:
        size = min(size, self.size - offset)
        if self.section is None or size <= 0:
            return b""
        return bytes(self.elf.bytes_at(self.section.offset + offset, size))

    def find(self, text: bytes) -> Iterator[int]:
        """Offsets of ``text``, in order."""
        step = 4 << 20
        for start in range(0, self.size, step):
            piece = self.read(start, step + len(text) - 1)
            at = piece.find(text)
            while at >= 0:
                yield start + at
                at = piece.find(text, at + 1)


def _next_page(offset: int) -> int:
    return (offset // _PAGE + 1) * _PAGE


def _wrapper_magic(elf: ElfFile) -> bytes:
    return _Window.of(elf, WRAPPERS).read(0, 4)


def _check_wrappers(elf: ElfFile, count: int) -> None:
    window = _Window.of(elf, WRAPPERS)
    if is_split(elf) or not window.size:
        return
    if window.size != count * _WRAPPER_SIZE:
        raise BrokenBundle(
            f"{elf.name}: {count} offload bundles in {SECTION}, but {window.size / _WRAPPER_SIZE:g} wrappers"
        )


def _read_bundle(window: _Window, offset: int) -> Bundle:
    head = window.read(offset, len(_MAGIC))
    name = window.elf.name
    if head == _MAGIC:
        return _read_plain(window, offset)
    if head[:4] == _COMPRESSED:
        return _read_compressed(window, offset)
    raise BrokenBundle(f"{name}: neither a bundle nor padding at {offset:#x} of {window.where}")


def _read_plain(window: _Window, offset: int) -> Bundle:
    entries = _entries(window.read(offset, _TABLE), window.elf.name, offset)
    size = max((e.offset + e.size for e in entries), default=len(_MAGIC) + 8)
    if offset + size > window.size:
        raise BrokenBundle(f"{window.elf.name}: the bundle at {offset:#x} of {window.where} ends past the section")
    flagged = tuple(_flagged(e, window.read(offset + e.offset, _ELF_HEADER)) for e in entries)
    return Bundle(offset, size, size, "none", flagged, window.where)


def _flagged(entry: Entry, head: bytes) -> Entry:
    """``entry`` with the target by the header of its code object, which ``head`` is if it is one."""
    if entry.arch is None or min(entry.size, len(head)) < _ELF_HEADER or head[:6] != b"\x7fELF\2\1":
        return entry
    code = ElfFile.parse(head, entry.target)
    if code.machine != EM_AMDGPU:
        return entry
    return Entry(entry.target, entry.offset, entry.size, target_of(code.flags))


def _entries(data: bytes, name: str, where: int) -> tuple[Entry, ...]:
    try:
        (count,) = struct.unpack_from("<Q", data, len(_MAGIC))
        if count > _MOST_ENTRIES:
            raise BrokenBundle(f"{name}: the bundle at {where:#x} claims {count} entries")
        position = len(_MAGIC) + 8
        found = []
        for _ in range(count):
            offset, size, length = _ENTRY.unpack_from(data, position)
            position += _ENTRY.size
            target = data[position : position + length]
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


def _header(data: bytes, where: int, name: str) -> _Header:
    """The head with which ``data`` starts."""
    try:
        _, version, method = _HEAD.unpack_from(data)
        if version == 1:
            (inflated,) = struct.unpack_from("<I", data, 8)
            size, length = 0, 20
        elif version == 2:
            size, inflated = struct.unpack_from("<II", data, 8)
            length = 24
        elif version == 3:
            size, inflated = struct.unpack_from("<QQ", data, 8)
            length = 32
        else:
            raise BrokenBundle(f"{name}: compressed bundle at {where:#x} of unknown version {version}")
    except struct.error as error:
        raise BrokenBundle(f"{name}: the compressed bundle at {where:#x} has no whole head") from error
    if method not in (0, 1):
        raise BrokenBundle(f"{name}: compressed bundle at {where:#x} uses unknown method {method}")
    return _Header(length, "zstd" if method else "zlib", size, inflated)


def _read_compressed(window: _Window, offset: int) -> Bundle:
    name = window.elf.name
    header = _header(window.read(offset, 32), offset, name)
    size = header.size or header.length + _stored_size(window, offset + header.length, header)
    if size < header.length or offset + size > window.size:
        raise BrokenBundle(f"{name}: the compressed bundle at {offset:#x} ends past the section")
    body = window.read(offset + header.length, min(size - header.length, _WINDOW))
    table = _inflate(body, header, name, most=_TABLE)
    if table[: len(_MAGIC)] != _MAGIC:
        raise BrokenBundle(f"{name}: the compressed bundle at {offset:#x} holds no bundle")
    entries = _entries(table, name, offset)
    if any(e.offset + e.size > header.inflated_size for e in entries):
        raise BrokenBundle(f"{name}: the bundle at {offset:#x} has entries past its inflated size")
    flagged = tuple(_flagged(e, table[e.offset : e.offset + _ELF_HEADER]) for e in entries)
    return Bundle(offset, size, header.inflated_size, header.method, flagged, window.where)


def _stored_size(window: _Window, start: int, header: _Header) -> int:
    """Version 1 has no total length: inflate to find where the stream ends."""
    name = window.elf.name
    stream: Any = zlib.decompressobj() if header.method == "zlib" else zstandard.ZstdDecompressor().decompressobj()
    try:
        for offset in range(start, window.size, _WINDOW):
            piece = window.read(offset, _WINDOW)
            stream.decompress(piece)
            if stream.eof:
                return offset + len(piece) - len(stream.unused_data) - start
    except (zlib.error, zstandard.ZstdError) as error:
        raise BrokenBundle(f"{name}: a compressed bundle is damaged: {error}") from error
    raise BrokenBundle(f"{name}: the stream of the compressed bundle before {start:#x} has no end")


def _inflate(body: bytes, header: _Header, name: str, *, most: int) -> bytes:
    """The first ``most`` bytes of the content; fewer when ``body`` is cut short before."""
    try:
        if header.method == "zlib":
            return zlib.decompressobj().decompress(body, most)
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            return reader.read(most)
    except (zlib.error, zstandard.ZstdError, MemoryError, OverflowError) as error:
        raise BrokenBundle(f"{name}: a compressed bundle is damaged: {error}") from error
