"""The wheel under examination: archive opened once, ELF members inflated once."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import BrokenElf, NotElf
from rocm_wheels.verify.catalogue import explain
from rocm_wheels.verify.model import Finding, Profile, VerifyOptions
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.metadata import headers
from rocm_wheels.wheel.record import Row, digest


@dataclass(frozen=True)
class Subject:
    """A wheel with what the checks look at. ``content`` has the true RECORD row of every member."""

    archive: WheelArchive
    elves: dict[str, ElfFile]
    content: dict[str, Row]
    options: VerifyOptions
    profile: Profile
    unreadable: tuple[Finding, ...]

    @property
    def external(self) -> frozenset[str]:
        """Libraries that METADATA declares to come from outside."""
        return frozenset(headers(self.archive.metadata, "Requires-External"))

    def member_of(self, library: str) -> str | None:
        """The member whose file name is ``library``."""
        return next((m for m in self.elves if posixpath.basename(m) == library), None)


@contextmanager
def open_subject(path: Path, options: VerifyOptions) -> Iterator[Subject]:
    """Open ``path``; raises the errors of a broken archive or wheel."""
    with WheelArchive.open(path) as archive:
        elves: dict[str, ElfFile] = {}
        content: dict[str, Row] = {}
        unreadable = []
        for member in archive.members:
            if member.is_directory:
                continue
            data = archive.read(member)
            content[member.name] = Row(member.name, digest(data), len(data))
            if data[:4] == b"\x7fELF":
                try:
                    elves[member.name] = elf = ElfFile.parse(data, member.name)
                    _ = elf.segments, elf.sections, elf.needed, elf.soname, elf.verneed, elf.verdef
                except (BrokenElf, NotElf) as error:
                    elves.pop(member.name, None)
                    unreadable.append(Finding(explain("elf-broken"), member.name, error.message))
        yield Subject(archive, elves, content, options, options.profile or _profile(archive), tuple(unreadable))


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
    if "torch" in {
        r.split()[0].partition(";")[0].partition("=")[0] for r in headers(archive.metadata, "Requires-Dist")
    }:
        return "torch-dependant"
    return "any"
