"""The wheel under examination: every member inflated once, its ELF files read, nothing of them kept but facts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import BrokenElf, BrokenWheel, NotElf
from rocm_wheels.repair.providers import is_rocm
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.elves import ElfFacts, Spool, facts_of
from rocm_wheels.verify.model import Finding, Profile, VerifyOptions
from rocm_wheels.wheel import Member, WheelArchive
from rocm_wheels.wheel.inflate import Inflated, inflate_each
from rocm_wheels.wheel.metadata import headers
from rocm_wheels.wheel.record import Row
from rocm_wheels.wheel.tags import blockers, find_policy

_ELF = b"\x7fELF"
_PYTHON_MOST = 4 << 20
# ctypes and its kin, given a whole file name.
_LOADS = re.compile(r"""(?:CDLL|LoadLibrary|dlopen|find_library)\(\s*["'](lib[\w+-]+\.so(?:\.\d+)*)["']""")


@dataclass(frozen=True)
class Subject:
    """A wheel with what the checks look at.

    ``content`` has the true RECORD row of every member, ``python_opens`` the libraries that its Python files open by
    name; ``companions`` are the wheels of the verified set that it pins.
    """

    archive: WheelArchive
    elves: dict[str, ElfFacts]
    content: dict[str, Row]
    python_opens: dict[str, tuple[str, ...]]
    options: VerifyOptions
    profile: Profile
    unreadable: tuple[Finding, ...]
    companions: tuple[Subject, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.archive.path.name

    @cached_property
    def external(self) -> frozenset[str]:
        """Libraries that METADATA declares to come from outside."""
        return frozenset(_headers(self.archive, "Requires-External"))

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """Requires-Dist that can be read, those of extras among them."""
        return requirements(_headers(self.archive, "Requires-Dist"))

    def requires(self, pattern: str) -> bool:
        """Whether a distribution whose name matches ``pattern`` is required, by an extra at least."""
        return any(re.fullmatch(pattern, canonicalize_name(r.name)) for r in self.requirements)

    @cached_property
    def libraries(self) -> dict[str, ElfFacts]:
        """Programs and libraries by member, those of the companions among them."""
        return {**{m: e for c in self.companions for m, e in c.elves.items()}, **self.elves}

    @cached_property
    def bundles_rocm(self) -> bool:
        """Whether libraries of ROCm are in the wheel."""
        return any(is_rocm(posixpath.basename(member)) for member in self.elves)

    def member_of(self, library: str) -> str | None:
        """The member whose file name is ``library``."""
        return next((m for m in self.libraries if posixpath.basename(m) == library), None)

    def text(self, name: str) -> str:
        """A small member as text, damaged characters replaced; "" when it is not there or not small."""
        if name not in self.archive or self.archive.member(name).size > _PYTHON_MOST:
            return ""
        return self.archive.read(name).decode("utf-8", "replace")


def requirements(texts: Iterable[str]) -> tuple[Requirement, ...]:
    """Those of ``texts`` that are requirements."""
    found = []
    for text in texts:
        try:
            found.append(Requirement(text))
        except InvalidRequirement:
            continue
    return tuple(found)


@contextmanager
def open_subject(path: Path, options: VerifyOptions) -> Iterator[Subject]:
    """Open and read ``path``; raises the errors of a broken archive or wheel."""
    with WheelArchive.open(path) as archive:
        yield _read(archive, options)


@dataclass(frozen=True)
class _Seen:
    """What one member gave."""

    row: Row
    elf: ElfFacts | None = None
    opens: tuple[str, ...] = ()
    unreadable: Finding | None = None


def _read(archive: WheelArchive, options: VerifyOptions) -> Subject:
    promised = [p for p in map(find_policy, sorted({t.platform for t in archive.tags})) if p]

    def forbidden(elf: ElfFile) -> Iterator[str]:
        for policy in promised:
            yield from (b.version for b in blockers(policy, [elf]) if b.version)

    def visit(inflated: Inflated) -> _Seen:
        member, sink = inflated.member, inflated.sink
        row = Row(member.name, inflated.digest, member.size)
        if not isinstance(sink, Spool):
            return _Seen(row)
        if member.name.endswith(".py"):
            return _Seen(row, opens=tuple(sorted(set(_LOADS.findall(sink.data.decode("utf-8", "replace"))))))
        try:
            return _Seen(row, facts_of(sink.elf(member.name), forbidden))
        except (BrokenElf, NotElf) as error:
            return _Seen(row, unreadable=finding("elf-broken", member.name, error.message))

    files = [m for m in archive.members if not m.is_directory]
    seen = sorted(
        inflate_each(archive, files, visit, sink=_sink, hashed=True, memory=options.memory), key=lambda s: s.row.path
    )
    return Subject(
        archive,
        {s.row.path: s.elf for s in seen if s.elf},
        {s.row.path: s.row for s in seen},
        {s.row.path: s.opens for s in seen if s.opens},
        options,
        options.profile or _profile(archive),
        tuple(s.unreadable for s in seen if s.unreadable),
    )


def _sink(member: Member, head: bytes) -> Spool | None:
    python = member.name.endswith(".py") and member.size <= _PYTHON_MOST
    return Spool(member.size) if head.startswith(_ELF) or python else None


def _headers(archive: WheelArchive, name: str) -> list[str]:
    try:
        return headers(archive.metadata, name)
    except BrokenWheel:
        return []


def with_companions(subjects: list[Subject]) -> list[Subject]:
    """Each of ``subjects`` with those others that it requires, and what these require."""
    return [replace(subject, companions=tuple(_required(subject, subjects, {id(subject)}))) for subject in subjects]


def _required(subject: Subject, others: list[Subject], seen: set[int]) -> Iterator[Subject]:
    for other in others:
        wanted = (r for r in subject.requirements if canonicalize_name(r.name) == other.archive.distribution)
        if id(other) in seen or not any(r.specifier.contains(other.archive.version, prereleases=True) for r in wanted):
            continue
        if not fits(subject, other):
            continue
        seen.add(id(other))
        yield other
        yield from _required(other, others, seen)


def fits(one: Subject, other: Subject) -> bool:
    """Whether some interpreter takes both wheels, by their tags."""
    mine, its = (
        {t.interpreter for t in s.archive.tags if t.interpreter.startswith("cp") and t.abi != "abi3"}
        for s in (one, other)
    )
    return not mine or not its or bool(mine & its)


def _profile(archive: WheelArchive) -> Profile:
    """The profile that a wheel's name asks for."""
    name = archive.distribution
    if name in ("torch", "minitorch", "torch-rocm"):
        return "torch"
    if "tensorflow" in name:
        return "tensorflow"
    if name.startswith("jax"):
        return "jax"
    if name.startswith("rocm"):
        return "rocm-base"
    if any(canonicalize_name(r.name) == "torch" for r in requirements(_headers(archive, "Requires-Dist"))):
        return "torch-dependant"
    return "any"
