"""Reads what a repair has to know of ELF files, in the wheel and on the machine, and lets go of their bytes.

Files in the wheel are inflated once, in parallel, largest first; of big ones only the loader's tables are kept.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.anatomy import Anatomy, Unpatchable, anatomy
from rocm_wheels.elf.reader import EM_AMDGPU, EM_X86_64
from rocm_wheels.elf.tables import Tables
from rocm_wheels.errors import BrokenElf, NotElf
from rocm_wheels.wheel import Member, WheelArchive
from rocm_wheels.wheel.budget import Budget
from rocm_wheels.wheel.inflate import Inflated, Whole, inflate_each, pour

SMALL = 1 << 20  # members up to this size are held whole
_ELF = b"\x7fELF"
_HEADER = 20
_LITERAL = re.compile(rb"lib[\w+-]+\.so(?:\.\d+)*\0")
_INSIDE_A_NAME = frozenset(b"-+./_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True)
class ElfFacts:
    """An ELF file without its bytes. ``name`` is the member, or the path of a file on the machine.

    ``anatomy`` is there for big members, so that an edit need not inflate them once more to find their tables.
    """

    name: str
    needed: tuple[str, ...]
    soname: str | None
    rpath: str | None
    runpath: str | None
    verneed: Mapping[str, tuple[str, ...]]
    stack_executable: bool
    size: int
    opens: tuple[str, ...] = ()
    anatomy: Anatomy | None = field(default=None, repr=False, compare=False)

    @property
    def search_path(self) -> str:
        """The entries that the loader honours: RUNPATH, or RPATH when there is none."""
        return (self.rpath or "") if self.runpath is None else self.runpath

    @property
    def has_rpath(self) -> bool:
        """Whether :attr:`search_path` is a DT_RPATH."""
        return self.runpath is None and self.rpath is not None


def wheel_facts(archive: WheelArchive, memory_mib: int) -> dict[str, ElfFacts]:
    """Every dynamic ELF file of the wheel for this machine type, by member name; device code is left out.

    Raises :class:`NotElf` for a foreign machine, :class:`BrokenElf` and :class:`BrokenArchive`.
    """
    room = Budget(memory_mib << 18)  # a quarter, for what stays of big members

    def visit(inflated: Inflated) -> ElfFacts | None:
        member, sink = inflated.member, inflated.sink
        if not isinstance(sink, Tables):
            return _facts(ElfFile.parse(inflated.data, member.name))
        return sink.read(
            member.name,
            lambda elf: _with_anatomy(elf, room),
            lambda again, stop: pour(archive, member, again, stop=stop),
        )

    members = [m for m in archive.members if _is_elf(archive, m)]
    sinks = inflate_each(
        archive,
        members,
        visit,
        sink=lambda m, _: Whole(m.size) if m.size <= SMALL else Tables(m.size),
        memory=memory_mib << 20,
    )
    return {facts.name: facts for facts in sorted(filter(None, sinks), key=lambda facts: facts.name)}


def has_elf(archive: WheelArchive) -> bool:
    """Whether the wheel has an ELF file, without inflating one."""
    return any(_is_elf(archive, m) for m in sorted(archive.members, key=lambda m: -m.size))


def _with_anatomy(elf: ElfFile, room: Budget) -> ElfFacts | None:
    facts = _facts(elf)
    with suppress(Unpatchable, BrokenElf):
        if facts is not None and room.reserve(len((found := anatomy(elf)).strings)):
            return replace(facts, anatomy=found)
    return facts


def _is_elf(archive: WheelArchive, member: Member) -> bool:
    if member.size < 64:
        return False
    head = archive.peek(member, _HEADER)
    return head[:4] == _ELF and head[18:20] != EM_AMDGPU.to_bytes(2, "little")


def file_facts(path: Path, *, opens: bool = False) -> ElfFacts:
    """The facts of a file on this machine, with the library names in its data when ``opens``.

    Raises :class:`NotElf` and :class:`BrokenElf`.
    """
    facts = _facts(map_elf(path), opens=opens)
    if facts is None:
        raise NotElf(f"{path} is no shared library")
    return facts


def map_elf(path: Path) -> ElfFile:
    """A file of this machine, mapped; the map goes with the last view of it. Raises :class:`NotElf`."""
    with path.open("rb") as file:
        return ElfFile.parse(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), str(path))


def _facts(elf: ElfFile, *, opens: bool = False) -> ElfFacts | None:
    if not elf.is_dynamic:
        return None
    if elf.machine != EM_X86_64:
        raise NotElf(f"{elf.name} is for machine {elf.machine}; ROCm runs on x86-64 (62) only")
    return ElfFacts(
        elf.name,
        elf.needed,
        elf.soname,
        elf.rpath,
        elf.runpath,
        elf.verneed,
        elf.stack_executable,
        elf.size,
        _literals(elf) if opens else (),
    )


def _literals(elf: ElfFile) -> tuple[str, ...]:
    """Library names among the constants, other than the file's own: what it may open at run time."""
    data = elf.section_bytes(".rodata")
    found = set()
    for match in _LITERAL.finditer(data):
        if not match.start() or data[match.start() - 1] not in _INSIDE_A_NAME:
            found.add(match[0][:-1].decode("ascii"))
    return tuple(sorted(found - {elf.soname or ""}))
