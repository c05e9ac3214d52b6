"""What editing has to know of an ELF file, read once: its tables, and nothing of its code or data."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rocm_wheels.elf.reader import PT_DYNAMIC, ElfFile

EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
PHDR = struct.Struct("<IIQQQQQQ")
SHDR = struct.Struct("<IIQQQQIIQQ")
DYN = struct.Struct("<qQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")
_VERDAUX = struct.Struct("<II")

DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 10, 14, 15, 29
_VERDEFS, _VERDEFNUM, _VERNEEDS, _VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
# Tags whose value is a string, search paths apart; the last are DT_CONFIG, DEPAUDIT, AUDIT, AUXILIARY and FILTER.
_NAMES = {DT_NEEDED, DT_SONAME, 0x6FFFFEFA, 0x6FFFFEFB, 0x6FFFFEFC, 0x7FFFFFFD, 0x7FFFFFFF}
_SHT_DYNSYM = 11
_SYMBOL = 24


class Unpatchable(Exception):
    """This file needs patchelf; the message says why."""


@dataclass(frozen=True)
class Anatomy:
    """What editing has to know of a file, with nothing of its code or data.

    ``names`` are places in the file that hold an offset into ``strings``, with that offset, in the table of needed
    versions; ``rooms`` are the offsets of search paths in ``strings`` into which nothing else points.
    """

    size: int
    header: bytes
    program_headers: bytes
    section_headers: bytes
    dynamic_offset: int
    dynamic: bytes
    strings_offset: int
    strings: bytes
    names: tuple[tuple[int, int], ...]
    rooms: tuple[int, ...]
    needed: tuple[str, ...]


def anatomy(elf: ElfFile) -> Anatomy:
    """Read it; raises :class:`Unpatchable` for a file without a dynamic section and :class:`BrokenElf`."""
    header = bytes(elf.bytes_at(0, EHDR.size))
    fields = EHDR.unpack(header)
    section_offset, section_count = (fields[6], fields[12]) if fields[11] == SHDR.size else (0, 0)
    segment = next((s for s in elf.segments if s.type == PT_DYNAMIC), None)
    values = dict(reversed(elf.dynamic))
    if segment is None or not {DT_STRTAB, DT_STRSZ} <= set(values):
        raise Unpatchable("it has no dynamic strings")
    offset, size = elf.program_header_table
    strings_offset = elf.offset_of(values[DT_STRTAB])
    strings = bytes(elf.bytes_at(strings_offset, values[DT_STRSZ]))
    sections = bytes(elf.bytes_at(section_offset, section_count * SHDR.size)) if section_offset else b""
    names = tuple(_version_names(elf, values))
    return Anatomy(
        elf.size,
        header,
        bytes(elf.bytes_at(offset, size)),
        sections,
        segment.offset,
        bytes(elf.bytes_at(segment.offset, segment.file_size)),
        strings_offset,
        strings,
        tuple((place, name) for place, name, file in names if file),
        tuple(_rooms(elf, strings, sections, [name for _, name, _ in names])),
        elf.needed,
    )


def _version_names(elf: ElfFile, values: dict[int, int]) -> Iterator[tuple[int, int, bool]]:
    """Place and value of every string offset in the version tables; True where it names a needed file."""
    for place, (_, count, file, aux, _next) in _chain(elf, values, _VERNEEDS, _VERNEEDNUM, _VERNEED):
        yield place + 4, file, True
        position = place + aux
        for _ in range(count):
            entry = _VERNAUX.unpack(elf.bytes_at(position, _VERNAUX.size))
            yield position + 8, entry[3], False
            position += entry[4]
    for place, (_, _flags, _index, count, _hash, aux, _next) in _chain(elf, values, _VERDEFS, _VERDEFNUM, _VERDEF):
        position = place + aux
        for _ in range(count):
            name, step = _VERDAUX.unpack(elf.bytes_at(position, _VERDAUX.size))
            yield position, name, False
            position += step


def _chain(
    elf: ElfFile, values: dict[int, int], table: int, number: int, layout: struct.Struct
) -> Iterator[tuple[int, tuple[int, ...]]]:
    place = elf.offset_of(values[table]) if table in values else 0
    for _ in range(min(values.get(number, 0), 1 << 16) if place else 0):
        entry = layout.unpack(elf.bytes_at(place, layout.size))
        yield place, entry
        if not entry[-1]:
            return
        place += entry[-1]


def _rooms(elf: ElfFile, strings: bytes, sections: bytes, versions: list[int]) -> Iterator[int]:
    """Offsets of search paths that nothing else points into: linkers let strings share their ends."""
    symbols = [row for row in SHDR.iter_unpack(sections) if row[1] == _SHT_DYNSYM]
    paths = {value for tag, value in elf.dynamic if tag in (DT_RPATH, DT_RUNPATH)}
    if len(symbols) != 1 or not paths:
        return
    table = elf.bytes_at(symbols[0][4], symbols[0][5] // _SYMBOL * _SYMBOL).cast("I")[::6]
    others = [value for tag, value in elf.dynamic if tag in _NAMES]
    for path in sorted(paths):
        end = strings.find(b"\0", path)
        used = (*others, *versions, *(paths - {path}))
        if end > path and not any(path <= name < end for name in used) and not any(path <= n < end for n in table):
            yield path
