"""Edits an ELF file as a few changed ranges and a tail, without writing the file anew.

A new string takes the room of the one that it replaces, if no one else points into it, or is found as the end of
another. Otherwise the string table moves to a new segment behind the end, as patchelf does, and the rest stays where it
is. Pure: from :class:`Anatomy`, which is all that is read of the file, and an :class:`Edit` to :class:`Patches`.
"""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rocm_wheels.elf.anatomy import (
    DT_NEEDED,
    DT_RPATH,
    DT_RUNPATH,
    DT_SONAME,
    DT_STRSZ,
    DT_STRTAB,
    DYN,
    EHDR,
    PHDR,
    SHDR,
    Anatomy,
    Unpatchable,
)
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.elf.reader import PF_W, PF_X, PT_DYNAMIC, PT_GNU_STACK, PT_INTERP, PT_LOAD, PT_PHDR, ElfFile
from rocm_wheels.errors import BrokenElf, EditFailed
from rocm_wheels.wheel.change import Change

_PF_R = 4
_PT_NOTE, _PT_GNU_PROPERTY = 4, 0x6474E553
_SHT_PROGBITS, _SHT_STRTAB, _SHT_DYNAMIC = 1, 3, 6
_PAGE = 4096
_ALIGN = 16
_MOST_WIPED = 32 << 20
_SPARE = 4  # free entries of a dynamic section that moves, as linkers leave them
_MAP_NORESERVE = 0x4000


@dataclass(frozen=True, kw_only=True)
class Edit:
    """All changes of one file. ``rpath`` None leaves it, "" removes it; ``force_rpath`` writes DT_RPATH."""

    rpath: str | None = None
    force_rpath: bool = False
    soname: str | None = None
    replace_needed: tuple[tuple[str, str], ...] = ()
    clear_stack: bool = False


@dataclass(frozen=True)
class Patches:
    """Bytes to put at offsets of the file, none of them past its end, and what comes behind it."""

    changes: tuple[Change, ...]
    tail: bytes


def patches(anatomy: Anatomy, edit: Edit, name: str) -> Patches:
    """The changes that make ``edit`` of the file, checked; none for one that is so already.

    Raises :class:`Unpatchable` where only patchelf can, :class:`BrokenElf` for tables that cannot be right, and
    :class:`EditFailed` when the result would not be what loaders accept and ``edit`` says.
    """
    result = _Patcher(anatomy, edit).patches()
    _check(anatomy, edit, result, name)
    return result


class _Patcher:
    """The tables of one file while they change."""

    def __init__(self, anatomy: Anatomy, edit: Edit) -> None:
        self.anatomy, self.edit = anatomy, edit
        self.header = list(EHDR.unpack(anatomy.header))
        self.segments = [list(row) for row in PHDR.iter_unpack(anatomy.program_headers)]
        self.sections = [list(row) for row in SHDR.iter_unpack(anatomy.section_headers)]
        self.slots = len(anatomy.dynamic) // DYN.size
        rows = list(DYN.iter_unpack(anatomy.dynamic[: self.slots * DYN.size]))
        self.dynamic = [list(row) for row in itertools.takewhile(lambda row: row[0], rows)]
        self.strings = bytearray(anatomy.strings)
        self.touched: list[tuple[int, int]] = []  # ranges of the old strings that changed
        self.changes: list[Change] = []

    def patches(self) -> Patches:
        self._set_rpath()
        self._set_soname()
        self._replace_needed()
        tail = self._grow()
        for offset, size in self.touched:
            end = offset + size
            self._differ(
                self.anatomy.strings_offset + offset, self.anatomy.strings[offset:end], self.strings[offset:end]
            )
        self._differ(0, self.anatomy.header, EHDR.pack(*self.header))
        self._differ(self.header[6], self.anatomy.section_headers, _pack(SHDR, self.sections))
        return Patches(tuple(sorted(self.changes)), tail)

    def _differ(self, place: int, old: bytes, new: bytes | bytearray) -> None:
        """Change ``old`` at ``place`` to ``new`` (which may be longer) from the first byte to the last that differs."""
        if old == new:
            return
        first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
        last = len(new)
        while last <= len(old) and new[last - 1] == old[last - 1]:
            last -= 1
        self.changes.append(Change(place + first, bytes(new[first:last])))

    def _set_rpath(self) -> None:
        if (path := self.edit.rpath) is None:
            return
        rows = [row for row in self.dynamic if row[0] in (DT_RPATH, DT_RUNPATH)]
        rooms = [self._clear_room(row[1]) for row in rows if row[1] in self.anatomy.rooms]
        kept = max(rows, key=lambda row: row[0], default=None)  # RUNPATH, which the loader honours when both are there
        self.dynamic = [row for row in self.dynamic if row not in rows or (path and row is kept)]
        if path:
            if kept is None:
                self.dynamic.append(kept := [0, 0])
            kept[:] = [DT_RPATH if self.edit.force_rpath else DT_RUNPATH, self._place(path, rooms)]

    def _clear_room(self, offset: int) -> tuple[int, int]:
        """Wipe the old path, so that none of the build host's stays behind; its offset and length."""
        size = self.strings.index(b"\0", offset) - offset
        self.strings[offset : offset + size] = bytes(size)
        self.touched.append((offset, size))
        return offset, size

    def _set_soname(self) -> None:
        if self.edit.soname is None:
            return
        row = next((row for row in self.dynamic if row[0] == DT_SONAME), None)
        if row is None:
            self.dynamic.append(row := [DT_SONAME, 0])
        row[1] = self._place(self.edit.soname)

    def _replace_needed(self) -> None:
        for old, new in self.edit.replace_needed:
            for row in self.dynamic:
                if row[0] == DT_NEEDED and self._string(row[1]) == old:
                    row[1] = self._place(new)
            for place, name in self.anatomy.names:  # needed versions name the file too, and the loader compares
                if self._string(name) == old:
                    self.changes.append(Change(place, struct.pack("<I", self._place(new))))

    def _string(self, offset: int) -> str:
        end = self.strings.find(b"\0", offset)
        if end < 0:
            raise BrokenElf(f"string {offset:#x} lies outside its table")
        return self.strings[offset:end].decode("utf-8", "surrogateescape")

    def _place(self, text: str, rooms: Sequence[tuple[int, int]] = ()) -> int:
        """Offset of ``text``: in one of ``rooms``, where the table has it already, or behind the end."""
        data = text.encode("utf-8", "surrogateescape") + b"\0"
        for offset, size in rooms:
            if len(data) <= size + 1:
                self.strings[offset : offset + len(data)] = data
                return offset
        offset = self.strings.find(data)
        if offset < 0:
            offset = len(self.strings)
            self.strings += data
        return offset

    def _lacks_stack(self) -> bool:
        """Clear the executable stack; True when no header says anything of the stack, which means executable."""
        if not self.edit.clear_stack:
            return False
        stacks = [row for row in self.segments if row[0] == PT_GNU_STACK]
        for row in stacks:
            row[1] &= ~PF_X
        return not stacks

    def _grow(self) -> bytes:
        """Lay what has no room where it was behind the end of the file, in a segment of its own; what to append."""
        strings = len(self.strings) > len(self.anatomy.strings)
        dynamic = len(self.dynamic) >= self.slots
        stack = [[PT_GNU_STACK, _PF_R | PF_W, 0, 0, 0, 0, 0, 16]] if self._lacks_stack() else []
        more = len(stack) + (strings or dynamic)
        table = bool(more) and not self._has_room(more)
        if not (table or strings or dynamic):
            self._finish_headers(stack)
            self._lay_dynamic()
            return b""
        start = -(-self.anatomy.size // _PAGE) * _PAGE
        loads = [row for row in self.segments if row[0] == PT_LOAD]
        address = -(-max(row[3] + row[6] for row in loads) // _PAGE) * _PAGE
        tail = _Tail(start, address, bytearray())
        segment = [PT_LOAD, _PF_R | (PF_W if dynamic else 0), start, address, address, 0, 0, _PAGE]
        if table and any(row[0] == PT_INTERP for row in self.segments):
            self._free_slot()
            table = False
        self.segments.insert(self.segments.index(loads[-1]) + 1, segment)
        if table:
            self.header[5] = tail.reserve((len(self.segments) + len(stack)) * PHDR.size)[0]
        if strings:
            self._move_strings(tail)
        if dynamic:
            self._move_dynamic(tail)
        else:
            self._lay_dynamic()
        segment[5] = segment[6] = len(tail.data)
        self._finish_headers(stack, tail if table else None)
        return bytes(start - self.anatomy.size) + bytes(tail.data)

    def _free_slot(self) -> None:
        """Take out a header that a program runs without: old kernels read a table that was moved wrong.

        Notes stay in the file for debuggers; of the two headers for them that of the properties goes first.
        """
        for kind in (_PT_GNU_PROPERTY, _PT_NOTE):
            for row in self.segments:
                if row[0] == kind:
                    self.segments.remove(row)
                    return
        raise Unpatchable("a program without notes has no room for another segment")

    def _has_room(self, more: int) -> bool:
        """Whether ``more`` program headers fit behind the others, in the segment that holds them."""
        start = self.header[5]
        end = start + (len(self.segments) + more) * PHDR.size
        free = all(row[4] >= end or row[4] + row[5] <= start for row in self.sections if row[1] and row[5])
        return (
            bool(self.sections)
            and free
            and any(row[0] == PT_LOAD and row[2] <= start and end <= row[2] + row[5] for row in self.segments)
        )

    def _finish_headers(self, stack: list[list[int]], tail: _Tail | None = None) -> None:
        self.segments += stack
        size = len(self.segments) * PHDR.size
        self.header[10] = len(self.segments)
        for row in self.segments:
            if row[0] == PT_PHDR:
                if tail is not None:
                    row[2:5] = [tail.start, tail.address, tail.address]
                row[5:7] = [size, size]
        table = _pack(PHDR, self.segments)
        if tail is None:
            self._differ(self.header[5], self.anatomy.program_headers, table)
        else:
            tail.data[:size] = table

    def _move_strings(self, tail: _Tail) -> None:
        size = len(self.strings)
        offset, address = tail.reserve(size)
        tail.data[-size:] = self.strings
        for row in self.sections:
            if row[1] == _SHT_STRTAB and row[4] == self.anatomy.strings_offset:
                row[3:6] = [address, offset, size]
                if row[5] <= _MOST_WIPED:  # the old table deflates to nothing
                    self.changes.append(Change(self.anatomy.strings_offset, bytes(len(self.anatomy.strings))))
                    self.touched.clear()
        for entry in self.dynamic:
            if entry[0] in (DT_STRTAB, DT_STRSZ):
                entry[1] = address if entry[0] == DT_STRTAB else size

    def _move_dynamic(self, tail: _Tail) -> None:
        rows = [*self.dynamic, *([[0, 0]] * (1 + _SPARE))]
        size = len(rows) * DYN.size
        offset, address = tail.reserve(size)
        tail.data[-size:] = _pack(DYN, rows)
        for row in self.segments:
            if row[0] == PT_DYNAMIC:
                row[2:7] = [offset, address, address, size, size]
        for section in self.sections:
            if section[1] == _SHT_DYNAMIC:
                section[3:6] = [address, offset, size]

    def _lay_dynamic(self) -> None:
        rows = [*self.dynamic, *([[0, 0]] * (self.slots - len(self.dynamic)))]
        self._differ(self.anatomy.dynamic_offset, self.anatomy.dynamic[: self.slots * DYN.size], _pack(DYN, rows))


@dataclass
class _Tail:
    """A new segment: where it starts in file and memory, and what is in it so far."""

    start: int
    address: int
    data: bytearray

    def reserve(self, size: int) -> tuple[int, int]:
        """Room for ``size`` bytes at its end, aligned; offset in the file and address."""
        self.data += bytes(-len(self.data) % _ALIGN)
        place = len(self.data)
        self.data += bytes(size)
        return self.start + place, self.address + place


def _pack(layout: struct.Struct, rows: Iterable[Sequence[int]]) -> bytes:
    try:
        return b"".join(layout.pack(*row) for row in rows)
    except struct.error as error:  # addresses at the end of the address space, moved
        raise Unpatchable("a table would hold a number that has no room") from error


def _check(anatomy: Anatomy, edit: Edit, result: Patches, name: str) -> None:
    """Raise :class:`EditFailed` unless ``result`` gives a file that loaders accept, says what ``edit`` wants, and has
    the code, data and device code that it had.
    """
    for row in SHDR.iter_unpack(anatomy.section_headers):
        start, end = row[4], row[4] + row[5]
        if row[1] == _SHT_PROGBITS and any(c.offset < end and start < c.end for c in result.changes):
            raise EditFailed(f"{name}: the edit would change code or data between {start:#x} and {end:#x}")
    size = anatomy.size + len(result.tail)
    data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)  # goes with its last view
    header = EHDR.unpack(anatomy.header)
    pieces = [(0, anatomy.header), (header[5], anatomy.program_headers), (header[6], anatomy.section_headers)]
    pieces += [(anatomy.dynamic_offset, anatomy.dynamic), (anatomy.strings_offset, anatomy.strings)]
    pieces += [(change.offset, change.data) for change in result.changes]
    for place, piece in (*pieces, (anatomy.size, result.tail)):
        data[place : place + len(piece)] = piece
    elf = ElfFile.parse(data, name)
    problems = [*check_layout(elf), *_differences(anatomy, edit, elf)]
    if problems:
        raise EditFailed(f"{name} would be damaged by the edit: {'; '.join(problems)}")


def _differences(anatomy: Anatomy, edit: Edit, elf: ElfFile) -> Iterator[str]:
    renamed = dict(edit.replace_needed)
    needed = tuple(renamed.get(n, n) for n in anatomy.needed)
    if elf.needed != needed:
        yield f"it needs {', '.join(elf.needed)}, not {', '.join(needed)}"
    if edit.soname not in (None, elf.soname):
        yield f"its SONAME is {elf.soname}, not {edit.soname}"
    if edit.rpath is not None and (elf.rpath if edit.force_rpath else elf.runpath) != (edit.rpath or None):
        yield f"its search path is {elf.rpath or elf.runpath}, not {edit.rpath}"
    if edit.clear_stack and elf.stack_executable:
        yield "its stack is executable"
