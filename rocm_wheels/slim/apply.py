"""Makes a slim wheel: opens the libraries once, plans, and writes what the plan says in one pass."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.cut import Edited, apply_pieces
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.errors import EditFailed
from rocm_wheels.slim.library import Library, slim_library
from rocm_wheels.slim.model import SlimPlan
from rocm_wheels.slim.plan import plan_slim
from rocm_wheels.wheel import WheelArchive, WheelWriter
from rocm_wheels.wheel.budget import WORKERS
from rocm_wheels.wheel.codec import Packed, pack_pieces
from rocm_wheels.wheel.inflate import Inflated, Whole, inflate_each
from rocm_wheels.wheel.metadata import with_header
from rocm_wheels.wheel.record import Row

MANIFEST = "rocm-wheels/slim.json"

# Where packages keep what they say as their `__version__`.
_VERSION_FILE = re.compile(r"\w+/_?version\.py")


def slim(
    wheel: Path, archs: Sequence[str], dest: Path, console: Console, *, build: bool = False, dry_run: bool = False
) -> SlimPlan:
    """Write ``wheel`` with the GPU code and data of ``archs`` only into directory ``dest``; returns what was decided.

    Raises :class:`ArchMissing` and :class:`NothingToSlim`, :class:`EditFailed` when a library would not be sound, the
    errors of reading, and :class:`NoSpace`; ``dest`` then holds no new file.
    """
    with WheelArchive.open(wheel) as archive:
        elves = _opened(archive, console)
        plan = plan_slim(archive, elves, archs, build=build)
        if dry_run:
            return plan
        dest.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".rocm-wheels-", dir=dest) as folder:
            packed = _edit_all(plan, elves, Path(folder), console)
            with console.step(f"write {plan.name}"), WheelWriter(dest / plan.name) as writer:
                _write(plan, archive, packed, writer)
        return plan


def _opened(archive: WheelArchive, console: Console) -> dict[str, ElfFile]:
    """Every library, inflated once and mapped: memory does not grow with them."""
    members = [m for m in archive.members if not m.is_directory and archive.peek(m, 4) == b"\x7fELF"]

    def parse(found: Inflated) -> ElfFile:
        return ElfFile.parse(found.data, found.member.name)

    elves = {}
    with console.progress("read libraries", len(members)) as advance:
        for elf in inflate_each(archive, members, parse, sink=lambda member, head: Whole(member.size)):
            elves[elf.name] = elf
            advance(1)
    return elves


def _edit_all(plan: SlimPlan, elves: dict[str, ElfFile], folder: Path, console: Console) -> dict[str, Packed]:
    changed = [library for library in plan.libraries if library.removed]
    changed.sort(key=lambda library: (-library.removed_size, library.member))

    def work(library: Library) -> tuple[str, Packed]:
        return library.member, _edit(library, elves[library.member], folder)

    with console.progress("cut libraries", len(changed)) as advance, ThreadPoolExecutor(WORKERS) as pool:
        found = {}
        for member, packed in pool.map(work, changed):
            found[member] = packed
            advance(1)
    return found


def _edit(library: Library, elf: ElfFile, folder: Path) -> Packed:
    pieces = slim_library(elf, library)
    problems = set(check_layout(Edited(elf, pieces))) - set(check_layout(elf))
    if problems:
        raise EditFailed(f"{library.member} would not load: {'; '.join(sorted(problems))}")
    return pack_pieces(apply_pieces(elf.bytes_at(0, elf.size), pieces), folder / library.member.replace("/", "-"))


def _write(plan: SlimPlan, archive: WheelArchive, packed: dict[str, Packed], writer: WheelWriter) -> None:
    rows = {row.path: row for row in archive.record}
    old = archive.dist_info
    new = f"{old.partition('-')[0]}-{plan.version}.dist-info"
    gone = {name for name, _ in plan.data} | {f"{old}/RECORD", f"{old}/{MANIFEST}"}
    texts = {
        f"{old}/METADATA": with_header(archive.metadata, "Version", plan.version),
        f"{old}/WHEEL": with_header(archive.wheel_file, "Build", plan.build) if plan.build else archive.wheel_file,
    }
    for member in archive.members:
        if member.is_directory or member.name in gone:
            continue
        name = _renamed(member.name, old, new)
        if _VERSION_FILE.fullmatch(member.name):
            texts[member.name] = _with_version(archive, member.name, plan.version)
        if member.name in texts:
            writer.add(name, texts[member.name].encode("utf-8", "surrogateescape"), mode=member.mode)
        elif member.name in packed:
            writer.add_packed(name, packed[member.name], mode=member.mode)
        else:
            writer.copy(archive, member, rows.get(member.name) or Row(member.name, "", None), name=name)
    writer.add(f"{new}/{MANIFEST}", (json.dumps(plan.as_dict(), indent=2, sort_keys=True) + "\n").encode())


def _with_version(archive: WheelArchive, name: str, version: str) -> str:
    """A package's version file that says the new version where it said the old one."""
    old = re.escape(str(archive.version))
    said = re.compile(rf"""^(__version__|version)(\s*(?::\s*str\s*)?=\s*)(["']){old}\3""", re.MULTILINE)
    text = archive.read(name).decode("utf-8", "surrogateescape")
    return said.sub(lambda m: f"{m[1]}{m[2]}{m[3]}{version}{m[3]}", text)


def _renamed(name: str, old: str, new: str) -> str:
    """``name`` below the directories that carry the version: .dist-info and .data."""
    for kind in (".dist-info", ".data"):
        before = old.removesuffix(".dist-info") + kind
        if name.startswith(f"{before}/"):
            return new.removesuffix(".dist-info") + kind + name[len(before) :]
    return name
