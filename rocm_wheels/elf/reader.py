"""Reads what a loader reads: program headers, dynamic section, symbol versions. Never writes.

Works over any buffer (bytes, mmap, memoryview) and touches only the pages that hold what is asked for. Layouts are
those of the System V gABI and of glibc's ``elf.h``; only 64-bit little-endian files exist on ROCm's platforms.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rocm_wheels.errors import BrokenElf, NotElf

EM_X86_64 = 62
EM_AMDGPU = 224

PT_LOAD = 1
PT_DYNAMIC = 2
PT_INTERP = 3
PT_PHDR = 6
PT_GNU_STACK = 0x6474E551
PF_X = 1
PF_W = 2

SHT_NOBITS = 8

_DT_NEEDED = 1
_DT_STRTAB = 5
_DT_STRSZ = 10
_DT_SONAME = 14
_DT_RPATH = 15
_DT_RUNPATH = 29
_DT_TEXTREL = 22
_DT_FLAGS = 30
_DT_VERDEF = 0x6FFFFFFC
_DT_VERDEFNUM = 0x6FFFFFFD
_DT_VERNEED = 0x6FFFFFFE
_DT_VERNEEDNUM = 0x6FFFFFFF
_DF_TEXTREL = 4

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_DYN = struct.Struct("<qQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_VERDAUX = struct.Struct("<II")
_SYM = struct.Struct("<IBBHQQ")
_VERSYM = struct.Struct("<H")


@dataclass(frozen=True)
class Segment:
    """A program header; offsets and sizes in bytes."""

    type: int
    flags: int
    offset: int
    vaddr: int
    file_size: int
    memory_size: int
    align: int


@dataclass(frozen=True)
class Section:
    """A section header; ``offset`` and ``size`` in bytes."""

    name: str
    type: int
    address: int
    offset: int
    size: int


class ElfFile:
    """One ELF file in ``buffer``; ``name`` stands in error messages.

    Every offset is checked against the buffer when it is followed: :class:`BrokenElf` names it.
    """

    def __init__(self, buffer: Any, name: str) -> None:
        self._data = memoryview(buffer)
        self.name = name
        header = self._unpack(_EHDR, 0)
        self.type, self.machine, self.flags = header[1], header[2], header[7]
        self._phoff, self._shoff = header[5], header[6]
        self._phentsize, self._phnum, self._shentsize, self._shnum, self._shstrndx = header[9:14]

    @classmethod
    def parse(cls, buffer: Any, name: str) -> ElfFile:
        """The file in ``buffer``; raises :class:`NotElf` for anything but 64-bit little-endian ELF."""
        ident = bytes(memoryview(buffer)[:16])
        if ident[:4] != b"\x7fELF":
            raise NotElf(f"{name} is not an ELF file")
        if len(ident) < 16 or ident[4] != 2 or ident[5] != 1:
            kind = "32-bit" if ident[4:5] == b"\x01" else "big-endian" if ident[5:6] == b"\x02" else "malformed"
            raise NotElf(f"{name} is a {kind} ELF file; ROCm has only 64-bit little-endian ones")
        return cls(buffer, name)

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        if offset < 0 or offset + layout.size > len(self._data):
            raise BrokenElf(f"{self.name}: a table entry at {offset:#x} lies outside the file ({len(self._data):#x})")
        return layout.unpack_from(self._data, offset)

    def bytes_at(self, offset: int, size: int) -> memoryview:
        """``size`` bytes of the file from ``offset``, not copied; raises :class:`BrokenElf` past the end."""
        if offset < 0 or size < 0 or offset + size > len(self._data):
            raise BrokenElf(f"{self.name}: {size:#x} bytes at {offset:#x} lie outside the file ({len(self._data):#x})")
        return self._data[offset : offset + size]

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return len(self._data)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The program headers in file order."""
        if self._phnum and self._phentsize != _PHDR.size:
            raise BrokenElf(f"{self.name}: program headers of {self._phentsize} bytes, {_PHDR.size} expected")
        found = []
        for index in range(self._phnum):
            kind, flags, offset, vaddr, _, file_size, memory_size, align = self._unpack(
                _PHDR, self._phoff + index * _PHDR.size
            )
            found.append(Segment(kind, flags, offset, vaddr, file_size, memory_size, align))
        return tuple(found)

    @property
    def program_header_table(self) -> tuple[int, int]:
        """Offset and size of the program header table."""
        return self._phoff, self._phnum * self._phentsize

    @property
    def section_header_table(self) -> int:
        """Offset of the section header table; 0 when it was stripped."""
        return int(self._shoff)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The section headers; empty when they were stripped."""
        if not self._shoff or not self._shnum:
            return ()
        if self._shentsize != _SHDR.size:
            raise BrokenElf(f"{self.name}: section headers of {self._shentsize} bytes, {_SHDR.size} expected")
        rows = [self._unpack(_SHDR, self._shoff + index * _SHDR.size) for index in range(self._shnum)]
        if self._shstrndx >= len(rows):
            raise BrokenElf(f"{self.name}: section name table {self._shstrndx} of {len(rows)}")
        names = rows[self._shstrndx]
        table = self.bytes_at(names[4], names[5])
        return tuple(Section(_string(table, row[0], self.name), row[1], row[3], row[4], row[5]) for row in rows)

    def section(self, name: str) -> Section | None:
        """The first section called ``name``."""
        return next((s for s in self.sections if s.name == name), None)

    def section_bytes(self, name: str) -> memoryview:
        """Content of section ``name``, not copied; empty when there is none or it has no bytes in the file."""
        section = self.section(name)
        if section is None or section.type == SHT_NOBITS:
            return self._data[:0]
        return self.bytes_at(section.offset, section.size)

    def offset_of(self, address: int) -> int:
        """File offset of a virtual address, by the loadable segments; raises :class:`BrokenElf`."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.vaddr <= address < segment.vaddr + segment.file_size:
                return segment.offset + address - segment.vaddr
        raise BrokenElf(f"{self.name}: address {address:#x} is in no loadable segment")

    @cached_property
    def dynamic(self) -> tuple[tuple[int, int], ...]:
        """Tag and value of each dynamic entry, as PT_DYNAMIC has them; empty for a static file."""
        segment = next((s for s in self.segments if s.type == PT_DYNAMIC), None)
        if segment is None:
            return ()
        table = self.bytes_at(segment.offset, segment.file_size)
        entries = []
        for tag, value in _DYN.iter_unpack(table[: len(table) // _DYN.size * _DYN.size]):
            if tag == 0:
                break
            entries.append((tag, value))
        return tuple(entries)

    def _first(self, tag: int) -> int | None:
        return next((value for t, value in self.dynamic if t == tag), None)

    @cached_property
    def _strings(self) -> memoryview:
        address, size = self._first(_DT_STRTAB), self._first(_DT_STRSZ)
        if address is None or size is None:
            return self._data[:0]
        return self.bytes_at(self.offset_of(address), size)

    def _dynamic_string(self, offset: int) -> str:
        return _string(self._strings, offset, self.name)

    def _optional_string(self, tag: int) -> str | None:
        value = self._first(tag)
        return None if value is None else self._dynamic_string(value)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """DT_NEEDED names in order."""
        return tuple(self._dynamic_string(value) for tag, value in self.dynamic if tag == _DT_NEEDED)

    @cached_property
    def soname(self) -> str | None:
        """DT_SONAME."""
        return self._optional_string(_DT_SONAME)

    @cached_property
    def rpath(self) -> str | None:
        """DT_RPATH: searched before LD_LIBRARY_PATH, ignored by the loader when there is a RUNPATH."""
        return self._optional_string(_DT_RPATH)

    @cached_property
    def runpath(self) -> str | None:
        """DT_RUNPATH: searched after LD_LIBRARY_PATH."""
        return self._optional_string(_DT_RUNPATH)

    @cached_property
    def verneed(self) -> dict[str, tuple[str, ...]]:
        """Symbol versions needed, by the name of the file that must define them."""
        found: dict[str, tuple[str, ...]] = {}
        for offset, (_, count, file, aux, _next) in self._chain(_DT_VERNEED, _DT_VERNEEDNUM, _VERNEED):
            names = []
            position = offset + aux
            for _ in range(count):
                entry = self._unpack(_VERNAUX, position)
                names.append(self._dynamic_string(entry[3]))
                position += entry[4]
            library = self._dynamic_string(file)
            found[library] = (*found.get(library, ()), *names)
        return found

    @cached_property
    def verdef(self) -> tuple[str, ...]:
        """Symbol versions that this file defines, its own name among them."""
        names = []
        for offset, (_, _flags, _index, _count, _hash, aux, _next) in self._chain(_DT_VERDEF, _DT_VERDEFNUM, _VERDEF):
            names.append(self._dynamic_string(self._unpack(_VERDAUX, offset + aux)[0]))
        return tuple(names)

    def symbol_of(self, version: str) -> str:
        """A symbol that this file takes in ``version``; "" when its section headers were stripped."""
        indexes = set()
        for offset, (_, count, _file, aux, _next) in self._chain(_DT_VERNEED, _DT_VERNEEDNUM, _VERNEED):
            position = offset + aux
            for _ in range(count):
                entry = self._unpack(_VERNAUX, position)
                if self._dynamic_string(entry[3]) == version:
                    indexes.add(entry[2])
                position += entry[4]
        versions, symbols = self.section_bytes(".gnu.version"), self.section_bytes(".dynsym")
        for number, (index,) in enumerate(_VERSYM.iter_unpack(versions[: len(versions) // 2 * 2])):
            if index & 0x7FFF in indexes and (number + 1) * _SYM.size <= len(symbols):
                return self._dynamic_string(_SYM.unpack_from(symbols, number * _SYM.size)[0])
        return ""

    @property
    def text_relocations(self) -> bool:
        """Whether loading changes pages of code."""
        return self._first(_DT_TEXTREL) is not None or bool((self._first(_DT_FLAGS) or 0) & _DF_TEXTREL)

    def _chain(self, table: int, number: int, layout: struct.Struct) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Entries of a version table, linked by the last field; bounded by the count, so no loop is endless."""
        address, count = self._first(table), self._first(number)
        if address is None or count is None:
            return
        offset = self.offset_of(address)
        for _ in range(min(count, 1 << 16)):
            entry = self._unpack(layout, offset)
            yield offset, entry
            if entry[-1] == 0:
                return
            offset += entry[-1]

    @cached_property
    def stack_executable(self) -> bool:
        """Whether loading this file asks for an executable stack: PT_GNU_STACK with PF_X, or none at all.

        glibc 2.41 and newer refuse to load such a library (dlopen fails).
        """
        stack = next((s for s in self.segments if s.type == PT_GNU_STACK), None)
        return stack is None or bool(stack.flags & PF_X)

    @property
    def is_dynamic(self) -> bool:
        """Whether the loader has anything to resolve here."""
        return bool(self.dynamic)

    @property
    def is_executable(self) -> bool:
        """A program rather than a library: it names its interpreter."""
        return any(s.type == PT_INTERP for s in self.segments)


def _string(table: memoryview, offset: int, name: str) -> str:
    if offset < 0 or offset >= len(table):
        raise BrokenElf(f"{name}: string {offset:#x} lies outside its table ({len(table):#x})")
    window = 256
    while True:  # names are short: look in growing windows instead of copying a table of megabytes
        chunk = bytes(table[offset : offset + window])
        end = chunk.find(b"\0")
        if end >= 0:
            return chunk[:end].decode("utf-8", "surrogateescape")
        if offset + window >= len(table):
            raise BrokenElf(f"{name}: string {offset:#x} has no end")
        window *= 4
