"""Keeps of an ELF file that goes by piece by piece what the loader's tables are, instead of the file.

``.dynamic`` comes long after the strings that it refers to, so the beginning is held until all has gone by; of the rest
only what the headers lead to. A range that is asked for and was not kept is an error, never zeros.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from rocm_wheels.elf.reader import PF_X, PT_DYNAMIC, PT_LOAD, ElfFile
from rocm_wheels.errors import BrokenElf, NotElf

_T = TypeVar("_T")
_BEGINNING = 8 << 20
_NEAR = 16 << 20
_SECTIONS = 256 << 10
_SEGMENT = 8 << 20
_PASSES = 8
_MAP_NORESERVE = 0x4000

Range = tuple[int, int]


class _NotKept(Exception):
    """Bytes were asked for that had gone by."""

    def __init__(self, start: int, size: int) -> None:
        super().__init__(f"{size:#x} bytes at {start:#x} were not kept")
        self.range = (start, start + size)


class Tables:
    """A sink (see :mod:`rocm_wheels.wheel.inflate`) whose :attr:`data` is as long as the file and mostly empty.

    Kept are the first 8 MiB, the dynamic section, small data segments (where patchelf moves tables to) and section
    headers; :meth:`read` gives an :class:`ElfFile` of it and gets what is missing.
    """

    def __init__(self, size: int) -> None:
        self.memory = min(size, 2 * _BEGINNING)
        self.data = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        self._kept: list[Range] = [(0, min(size, _BEGINNING))]
        self._read: set[Range] = set()

    def write(self, offset: int, piece: bytes) -> None:
        """Keep of ``piece`` what is wanted."""
        end = offset + len(piece)
        for start, stop in self._kept:
            if start < end and offset < stop:
                first, last = max(start, offset), min(stop, end)
                self.data[first:last] = piece[first - offset : last - offset]
        if offset == 0:
            with suppress(BrokenElf, NotElf):  # whoever reads the file finds the same and says so
                self._follow(ElfFile.parse(piece, ""))

    def _follow(self, head: ElfFile) -> None:
        for segment in head.segments:
            small = segment.type == PT_LOAD and not segment.flags & PF_X and segment.file_size <= _SEGMENT
            if small or segment.type == PT_DYNAMIC:
                self._keep(segment.offset, segment.offset + segment.file_size)
        if table := head.section_header_table:  # mostly last, but patchelf puts segments behind it
            self._keep(table, table + _SECTIONS)

    def _keep(self, start: int, stop: int) -> None:
        self._kept.append((max(0, start), min(stop, len(self.data))))

    def read(self, name: str, visit: Callable[[ElfFile], _T], again: Callable[[Tables, int], object]) -> _T:
        """What ``visit`` makes of the file; ``again`` pours it once more, up to an offset, when a range is missing.

        Raises :class:`BrokenElf` for a file whose tables are all over the place, and what ``visit`` raises.
        """
        for _ in range(_PASSES):
            try:
                return visit(_KeptFile(self, name))
            except _NotKept as missing:
                start, stop = missing.range  # tables lie together: what is missing next is likely near
                self._keep(start - _NEAR, stop + _NEAR)
                stop = self._kept[-1][1]
            again(self, stop)
        raise BrokenElf(f"{name}: its tables lie in more than {_PASSES} places")

    def note(self, offset: int, size: int) -> None:
        """Note that a range is read; raises when it was not kept."""
        if (offset, offset + size) in self._read:
            return
        if not any(start <= offset and offset + size <= stop for start, stop in self._kept):
            raise _NotKept(offset, size)
        self._read.add((offset, offset + size))

    def trim(self) -> None:
        """Let go of the memory of all that was not read so far."""
        page = mmap.PAGESIZE
        position = 0
        for start, stop in [*sorted(self._read), (len(self.data), len(self.data))]:
            first, last = -(-position // page) * page, start // page * page
            if first < last:
                self.data.madvise(mmap.MADV_DONTNEED, first, last - first)
            position = max(position, stop)
        self._kept = sorted(self._read)
        self.memory = sum(stop - start for start, stop in self._kept)


class _KeptFile(ElfFile):
    """An ELF file that refuses ranges which were not kept."""

    def __init__(self, tables: Tables, name: str) -> None:
        self._tables = tables
        super().__init__(tables.data, name)

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        if 0 <= offset <= len(self._data) - layout.size:
            self._tables.note(offset, layout.size)
        return super()._unpack(layout, offset)

    def bytes_at(self, offset: int, size: int) -> memoryview:
        """As in :class:`ElfFile`."""
        if offset >= 0 and 0 <= size <= len(self._data) - offset:
            self._tables.note(offset, size)
        return super().bytes_at(offset, size)
