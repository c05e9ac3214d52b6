"""What runs in the processes that the repair measurement starts: ``python -m tests.bench.jobs JOB WHEEL DEST``."""

from __future__ import annotations

import os
import posixpath
import sys
from dataclasses import replace
from pathlib import Path


def _inflate(wheel: Path) -> None:
    """The least that analysing can cost: every ELF member inflated once, in threads, and thrown away."""
    from concurrent.futures import ThreadPoolExecutor

    from isal import isal_zlib

    from rocm_wheels.wheel import Member, WheelArchive

    def inflate(member: Member) -> None:
        stream, place = isal_zlib.decompressobj(-15), member.offset
        while not stream.eof:
            pending = stream.unconsumed_tail or archive.read_at(place, 128 << 10)
            place += 0 if stream.unconsumed_tail else len(pending)
            stream.decompress(pending, 1 << 20)

    with WheelArchive.open(wheel) as archive:
        members = [m for m in archive.members if m.size and archive.peek(m, 4) == b"\x7fELF"]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(inflate, sorted(members, key=lambda m: -m.size)))


def _repair(job: str, wheel: Path, dest: Path, *lib_dirs: str) -> None:
    from rocm_wheels.console import Console
    from rocm_wheels.elf.patch import Edit
    from rocm_wheels.repair import RepairOptions, apply_plan, plan_repair
    from rocm_wheels.repair.graft import DEFAULT_LIB_DIRS
    from rocm_wheels.repair.providers import SDK_LAYOUTS
    from rocm_wheels.repair.rpath import origin

    options = {
        "analysed": RepairOptions(mode="retag", exclude=("*",)),
        "rpath": RepairOptions(mode="retag", exclude=("*",)),
        "retag": RepairOptions(mode="retag", plat="linux_x86_64"),
        "fat": RepairOptions(mode="fat", lib_dirs=(*map(Path, lib_dirs), *DEFAULT_LIB_DIRS)),
    }[job]
    plan = plan_repair(wheel, options)
    if job == "rpath":

        def edit(member: str) -> Edit:
            here = posixpath.dirname(member)
            return Edit(rpath=":".join(("$ORIGIN", *(origin(here, layout) for layout in SDK_LAYOUTS))))

        plan = replace(plan, elves=tuple(replace(e, edit=edit(e.member)) if e.needs else e for e in plan.elves))
    apply_plan(replace(plan, retags=True), dest, Console(quiet=True))  # a wheel that is right is written too


if __name__ == "__main__":
    if sys.argv[1] == "inflate":
        _inflate(Path(sys.argv[2]))
    else:
        _repair(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
