"""Reads what a repair has to know of ELF files, in the wheel and on the machine, and lets go of their bytes.

Files in the wheel are inflated once, in parallel, largest first; a big one goes through an unnamed file, so that memory
stays bounded.
"""

from __future__ import annotations

import mmap
import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.reader import EM_AMDGPU, EM_X86_64
from rocm_wheels.errors import NotElf
from rocm_wheels.repair.budget import WORKERS, Budget
from rocm_wheels.wheel import Member, WheelArchive

_IN_MEMORY = 64 << 20
_ELF = b"\x7fELF"
_HEADER = 20
_LITERAL = re.compile(rb"lib[\w+-]+\.so(?:\.\d+)*\0")
_INSIDE_A_NAME = frozenset(b"-+./_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


@dataclass(frozen=True)
class ElfFacts:
    """An ELF file without its bytes. ``name`` is the member, or the path of a file on the machine."""

    name: str
    needed: tuple[str, ...]
    soname: str | None
    rpath: str | None
    runpath: str | None
    verneed: Mapping[str, tuple[str, ...]]
    stack_executable: bool
    size: int
    opens: tuple[str, ...] = ()

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
    members = sorted((m for m in archive.members if _is_elf(archive, m)), key=lambda m: -m.size)
    budget = Budget(memory_mib << 20)

    def read(member: Member) -> ElfFacts | None:
        held = 2 * member.size if member.size <= _IN_MEMORY else 16 << 20
        with budget.take(held), _content(archive, member) as data:
            return _facts(data, member.name)

    with ThreadPoolExecutor(WORKERS) as pool:
        found = {facts.name: facts for facts in pool.map(read, members) if facts}
    return dict(sorted(found.items()))


def _is_elf(archive: WheelArchive, member: Member) -> bool:
    if member.size < 64:
        return False
    head = archive.peek(member, _HEADER)
    return head[:4] == _ELF and head[18:20] != EM_AMDGPU.to_bytes(2, "little")


@contextmanager
def _content(archive: WheelArchive, member: Member) -> Iterator[Any]:
    if member.size <= _IN_MEMORY:
        yield archive.read(member)
        return
    with tempfile.TemporaryFile(dir=archive.path.parent) as file:
        for chunk in archive.chunks(member):
            file.write(chunk)
        file.flush()
        yield mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # goes with its last view


def file_facts(path: Path, *, opens: bool = False) -> ElfFacts:
    """The facts of a file on this machine, with the library names in its data when ``opens``.

    Raises :class:`NotElf` and :class:`BrokenElf`.
    """
    with path.open("rb") as file:
        facts = _facts(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), str(path), opens=opens)
    if facts is None:
        raise NotElf(f"{path} is no shared library")
    return facts


def _facts(data: Any, name: str, *, opens: bool = False) -> ElfFacts | None:
    elf = ElfFile.parse(data, name)
    if not elf.is_dynamic:
        return None
    if elf.machine != EM_X86_64:
        raise NotElf(f"{name} is for machine {elf.machine}; ROCm runs on x86-64 (62) only")
    return ElfFacts(
        name,
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
