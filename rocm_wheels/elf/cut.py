"""Takes bytes out of a mapped section without moving anything in memory.

Every address outside the section stays, so no code and no relocation has to change but those that point into it. The
section's LOAD is split around the hole, or cut short when nothing follows in it; what lies behind the hole moves down
in the file by a multiple of the largest alignment. The longer program header table goes into the section's LOAD, where
the section ended, with file offset and address as far apart as before. Layout: System V gABI, chapter 5.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from rocm_wheels.elf.reader import PT_LOAD, PT_PHDR, ElfFile, Section, Segment
from rocm_wheels.errors import BrokenElf

_PAGE = 4096
_EHDR_PHOFF, _EHDR_SHOFF, _EHDR_PHNUM = 32, 40, 56
_PHDR = struct.Struct("<IIQQQQQQ")
_SHDR = struct.Struct("<IIQQQQIIQQ")
_RELA = struct.Struct("<QQq")
_SYM = struct.Struct("<IBBHQQ")
_WORD = struct.Struct("<Q")
_R_X86_64_RELATIVE = 8
_DT_RELA, _DT_RELASZ, _DT_RELR, _DT_RELRSZ = 7, 8, 36, 35


_Moved = Callable[[int], int]


@dataclass(frozen=True, order=True)
class Piece:
    """``file[start:end]`` becomes ``content``, of any length."""

    start: int
    end: int
    content: bytes


@dataclass(frozen=True)
class Pointer:
    """A word at ``address`` that the loader fills with ``target``; ``places`` are the file offsets that say so."""

    address: int
    target: int
    places: tuple[int, ...]


def pointers_into(elf: ElfFile, section: Section) -> tuple[Pointer, ...]:
    """The words relocated to point into ``section``, from RELA and RELR relative relocations."""
    low, high = section.address, section.address + section.size
    found = [p for p in (*_rela(elf), *_relr(elf)) if low <= p.target < high]
    return tuple(sorted(found, key=lambda p: p.address))


def _table(elf: ElfFile, start: int, size: int) -> tuple[int, bytes]:
    values = dict(elf.dynamic)
    if start not in values:
        return 0, b""
    offset = elf.offset_of(values[start])
    return offset, bytes(elf.bytes_at(offset, values.get(size, 0)))


def _rela(elf: ElfFile) -> Iterator[Pointer]:
    offset, table = _table(elf, _DT_RELA, _DT_RELASZ)
    for index, (address, info, addend) in enumerate(_RELA.iter_unpack(table[: len(table) // 24 * 24])):
        if info & 0xFFFFFFFF == _R_X86_64_RELATIVE:
            yield Pointer(address, addend, (offset + index * _RELA.size + 16,))


def _relr(elf: ElfFile) -> Iterator[Pointer]:
    """Packed relative relocations: an address, then bitmaps of the 63 words after it; the target is the word itself."""
    _, table = _table(elf, _DT_RELR, _DT_RELRSZ)
    where = 0
    for (entry,) in _WORD.iter_unpack(table[: len(table) // 8 * 8]):
        if not entry & 1:
            yield _in_place(elf, entry)
            where = entry + 8
            continue
        for bit in range(63):
            if entry >> (bit + 1) & 1:
                yield _in_place(elf, where + 8 * bit)
        where += 63 * 8


def _in_place(elf: ElfFile, address: int) -> Pointer:
    offset = elf.offset_of(address)
    return Pointer(address, _WORD.unpack(elf.bytes_at(offset, 8))[0], (offset,))


def symbols_in(elf: ElfFile, section: Section) -> int:
    """How many exported symbols lie in ``section``: others may refer to them by name."""
    table = elf.section(".dynsym")
    if table is None:
        return 0
    rows = _SYM.iter_unpack(bytes(elf.bytes_at(table.offset, table.size // _SYM.size * _SYM.size)))
    return sum(section.address <= row[4] < section.address + section.size and row[3] != 0 for row in rows)


def repoint(pointers: tuple[Pointer, ...], moves: Mapping[int, int]) -> tuple[Piece, ...]:
    """Edits that let every pointer to a key of ``moves`` point to its value."""
    return tuple(
        Piece(place, place + 8, _WORD.pack(moves[pointer.target]))
        for pointer in pointers
        for place in pointer.places
        if moves.get(pointer.target, pointer.target) != pointer.target
    )


def replace_section(elf: ElfFile, section: Section, content: bytes) -> tuple[Piece, ...]:
    """Edits that give ``section`` the shorter ``content`` and take what is left over out of the file.

    Where the layout allows no hole (a program, memory beyond the file, too little to gain) zeros fill the section: it
    keeps its size and vanishes in an archive. Raises :class:`ValueError` for longer content.
    """
    if len(content) > section.size:
        raise ValueError(f"{section.name} has {section.size} bytes, {len(content)} do not fit")
    load = next((s for s in elf.segments if s.type == PT_LOAD and _holds(s, section)), None)
    hole = None if load is None or elf.is_executable else _hole(elf, section, load, len(content))
    if load is None or hole is None:
        whole = content + bytes(section.size - len(content))
        return (Piece(section.offset, section.offset + section.size, whole),)
    return _cut(elf, section, content, load, hole)


def _holds(load: Segment, section: Section) -> bool:
    return load.offset <= section.offset and section.offset + section.size <= load.offset + load.file_size


@dataclass(frozen=True)
class _Hole:
    """File bytes ``[start, end)`` go; a program header table for a split LOAD lies at ``table`` before it."""

    start: int
    end: int
    table: int | None

    @property
    def size(self) -> int:
        return self.end - self.start


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _hole(elf: ElfFile, section: Section, load: Segment, kept: int) -> _Hole | None:
    """The largest hole, None if there is none. Its size keeps later offsets congruent to their addresses."""
    unit = max(_PAGE, *(s.align for s in elf.segments if s.type == PT_LOAD))
    end, load_end = section.offset + section.size, load.offset + load.file_size
    first_end = section.offset + kept
    table = None
    if end < load_end:
        end -= (end - load.offset + load.vaddr) % _PAGE  # a page belongs to one LOAD only
        table = _up(first_end, 8)
        first_end = table + (len(elf.segments) + 1) * _PHDR.size
    elif load.memory_size != load.file_size:
        return None
    size = (end - first_end) // unit * unit
    crossed = any(s.type != PT_LOAD and s.offset < end < s.offset + s.file_size for s in elf.segments)
    return None if size <= 0 or crossed else _Hole(end - size, end, table)


def _cut(elf: ElfFile, section: Section, content: bytes, load: Segment, hole: _Hole) -> tuple[Piece, ...]:
    def moved(offset: int) -> int:
        return offset - hole.size if offset >= hole.end else offset

    headers = b"".join(_program_headers(elf, load, hole, moved))
    at, length = elf.program_header_table
    body = content
    pieces = []
    if hole.table is None:
        pieces.append(Piece(at, at + length, headers))
    else:
        body += bytes(hole.table - section.offset - len(content)) + headers
        pieces.append(Piece(_EHDR_PHOFF, _EHDR_PHOFF + 8, _WORD.pack(hole.table)))
        pieces.append(Piece(_EHDR_PHNUM, _EHDR_PHNUM + 2, struct.pack("<H", len(elf.segments) + 1)))
    end = section.offset + section.size
    pieces.append(Piece(section.offset, end, body.ljust(end - hole.size - section.offset, b"\0")))
    if elf.sections:
        pieces += _section_headers(elf, section, len(content), moved)
    return tuple(sorted(pieces))


def _program_headers(elf: ElfFile, load: Segment, hole: _Hole, moved: _Moved) -> Iterator[bytes]:
    at, length = elf.program_header_table
    for segment, row in zip(elf.segments, _PHDR.iter_unpack(elf.bytes_at(at, length)), strict=True):
        kind, flags, offset, vaddr, paddr, file_size, memory_size, align = row
        if segment is load:
            first = hole.start - offset
            yield _PHDR.pack(kind, flags, offset, vaddr, paddr, first, first, align)
            if hole.table is not None:
                gone = hole.end - offset
                rest = (vaddr + gone, paddr + gone, file_size - gone, memory_size - gone)
                yield _PHDR.pack(kind, flags, hole.start, *rest, align)
        elif kind == PT_PHDR and hole.table is not None:
            place = load.vaddr + hole.table - load.offset
            size = (len(elf.segments) + 1) * _PHDR.size
            yield _PHDR.pack(kind, flags, hole.table, place, place, size, size, align)
        else:
            yield _PHDR.pack(kind, flags, moved(offset), vaddr, paddr, file_size, memory_size, align)


def _section_headers(elf: ElfFile, section: Section, size: int, moved: _Moved) -> list[Piece]:
    at = elf.section_header_table
    rows = []
    for index, known in enumerate(elf.sections):
        row = list(_SHDR.unpack(elf.bytes_at(at + index * _SHDR.size, _SHDR.size)))
        row[4] = moved(row[4])
        if known == section:
            row[5] = size
        rows.append(_SHDR.pack(*row))
    table = b"".join(rows)
    return [
        Piece(at, at + len(table), table),
        Piece(_EHDR_SHOFF, _EHDR_SHOFF + 8, _WORD.pack(moved(at))),
    ]


def apply_pieces(content: memoryview, pieces: tuple[Piece, ...]) -> Iterator[memoryview]:
    """The new file, part by part, without copying what stays; ``pieces`` in order and apart from each other."""
    position = 0
    for piece in sorted(pieces):
        yield content[position : piece.start]
        yield memoryview(piece.content)
        position = piece.end
    yield content[position:]


class Edited(ElfFile):
    """The file that ``pieces`` make of ``elf``, to be read without being laid out."""

    def __init__(self, elf: ElfFile, pieces: tuple[Piece, ...]) -> None:
        self._parts = [part for part in apply_pieces(elf.bytes_at(0, elf.size), pieces) if part]
        self._starts = list(accumulate(map(len, self._parts), initial=0))
        super().__init__(b"", elf.name)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self._starts[-1]

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        return layout.unpack(self.bytes_at(offset, layout.size))

    def bytes_at(self, offset: int, size: int) -> memoryview:
        """``size`` bytes from ``offset``; raises :class:`BrokenElf` past the end."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise BrokenElf(f"{self.name}: {size:#x} bytes at {offset:#x} lie outside the file ({self.size:#x})")
        found = bytearray()
        for index in range(bisect_right(self._starts, offset) - 1, len(self._parts)):
            start = offset + len(found) - self._starts[index]
            found += self._parts[index][start : start + size - len(found)]
            if len(found) == size:
                break
        return memoryview(found)
