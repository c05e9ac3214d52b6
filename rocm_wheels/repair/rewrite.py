"""Makes the members that a plan changes or brings in: edited, deflated, hashed, in parallel, largest first.

Of a big library only the ranges that an edit changes are deflated anew; no copy of it is laid anywhere. What patchelf
has to edit is the exception.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.anatomy import Anatomy, Unpatchable, anatomy
from rocm_wheels.elf.edit import Edit, apply_edit
from rocm_wheels.elf.patch import Patches, patches
from rocm_wheels.elf.tables import Tables
from rocm_wheels.errors import BrokenWheel
from rocm_wheels.repair.facts import SMALL, map_elf
from rocm_wheels.wheel import Member, WheelArchive
from rocm_wheels.wheel.budget import WORKERS, Budget
from rocm_wheels.wheel.change import changed
from rocm_wheels.wheel.codec import Packed, pack, pack_file, pack_pieces
from rocm_wheels.wheel.inflate import pour
from rocm_wheels.wheel.record import digest, encode_digest
from rocm_wheels.wheel.splice import Unspliceable, splice

_PIECE = 4 << 20
_WORKING = 64 << 20  # what splicing or deflating one big file holds


@dataclass(frozen=True)
class Job:
    """A member to make: from the wheel, or from ``source`` on this machine; with ``edit``, if any."""

    member: str
    size: int
    edit: Edit | None
    source: Path | None = None


class Rewriter:
    """Makes members of one archive. ``known`` has the anatomy of libraries that were read for the plan."""

    def __init__(
        self, archive: WheelArchive, scratch: Path, known: Mapping[str, Anatomy], console: Console, memory: int
    ) -> None:
        self._archive = archive
        self._scratch = scratch
        self._known = known
        self._console = console
        self._budget = Budget(memory)
        self._hashes = {row.path: row.digest for row in archive.record if row.digest.startswith("sha256=")}

    def make(self, jobs: Iterable[Job]) -> dict[str, Packed]:
        """Every member by its name.

        Raises :class:`EditFailed`, :class:`BrokenElf`, :class:`BrokenArchive`, :class:`NoSpace`, and
        :class:`BrokenWheel` for a file that is not what RECORD says: its new hash would bless it.
        """
        ordered = sorted(jobs, key=lambda job: (-job.size, job.member))
        if not ordered:
            return {}
        with self._console.progress("rewrite files", len(ordered)) as advance, ThreadPoolExecutor(WORKERS) as pool:
            found = {}
            for job, packed in zip(ordered, pool.map(self._make, ordered), strict=True):
                found[job.member] = packed
                advance(1)
        return found

    def _make(self, job: Job) -> Packed:
        with self._budget.take(_WORKING if job.source or job.size > SMALL else 4 * job.size):
            try:
                return self._patch(job)
            except (Unpatchable, Unspliceable):
                return self._rewrite(job)

    def _rewrite(self, job: Job) -> Packed:
        """The member by way of a file: for patchelf, or for a deflate stream that cannot be spliced."""
        file = self._lay(job)
        if job.edit:
            apply_edit(file, job.edit)
        packed = pack_file(file, self._place())
        file.unlink()
        return packed

    def _patch(self, job: Job) -> Packed:
        """The member without laying a copy of it; raises :class:`Unpatchable` and :class:`Unspliceable`."""
        if job.source is not None:
            result = patches(anatomy(map_elf(job.source)), job.edit, job.member) if job.edit else Patches((), b"")
            return pack_pieces(changed(_pieces(job.source), result.changes, result.tail), self._place())
        member, edit = self._archive.member(job.member), job.edit or Edit()
        if member.size > SMALL:
            result = patches(self._anatomy(member), edit, member.name)
            recorded = self._hashes.get(member.name, "")
            return splice(self._archive, member, result.changes, tail=result.tail, recorded=recorded)
        content = self._archive.read(member)
        self._check(member.name, digest(content))
        result = patches(anatomy(ElfFile.parse(content, member.name)), edit, member.name)
        return pack(b"".join(changed([content], result.changes, result.tail)))

    def _anatomy(self, member: Member) -> Anatomy:
        if member.name in self._known:
            return self._known[member.name]
        tables = Tables(member.size)
        pour(self._archive, member, tables)
        return tables.read(member.name, anatomy, lambda again, stop: pour(self._archive, member, again, stop=stop))

    def _lay(self, job: Job) -> Path:
        file = self._place()
        if job.source is not None:
            shutil.copyfile(job.source, file)
            return file
        sha = hashlib.sha256()
        with file.open("wb") as out:
            for piece in self._archive.chunks(self._archive.member(job.member)):
                sha.update(piece)
                out.write(piece)
        self._check(job.member, encode_digest(sha.digest()))
        return file

    def _place(self) -> Path:
        descriptor, name = tempfile.mkstemp(dir=self._scratch)
        os.close(descriptor)
        return Path(name)

    def _check(self, member: str, found: str) -> None:
        if self._hashes.get(member, found) != found:
            raise BrokenWheel(
                f"{self._archive.path.name}: {member} is not the file that RECORD vouches for",
                remedy="get the wheel again, or make a new RECORD where it was built",
            )


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
