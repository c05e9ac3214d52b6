"""Carries a plan out: what changes is made first, then the wheel is written in one pass."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.errors import NoSpace
from rocm_wheels.repair.model import RepairPlan
from rocm_wheels.repair.sbom import SBOM, licences, sbom
from rocm_wheels.wheel import WheelArchive, WheelWriter
from rocm_wheels.wheel.codec import Packed
from rocm_wheels.wheel.metadata import with_headers, with_tags
from rocm_wheels.wheel.record import Row


def apply_plan(plan: RepairPlan, dest: Path, console: Console, *, memory_mib: int = 512) -> Path:
    """Write the repaired wheel into directory ``dest`` and return its path; buffers stay below ``memory_mib``.

    A wheel that needs nothing is copied byte for byte. Raises :class:`EditFailed`, :class:`NoSpace` and
    :class:`BrokenWheel` for a file that is not what RECORD says; ``dest`` then holds no new file.
    """
    target = dest / plan.name
    try:
        dest.mkdir(parents=True, exist_ok=True)
        if plan.is_noop:
            return _take_over(plan.wheel, target)
        with tempfile.TemporaryDirectory(prefix=".rocm-wheels-", dir=dest) as scratch:
            with WheelArchive.open(plan.wheel) as archive:
                _check_space(plan, archive, dest)
                packed = _made(plan, archive, Path(scratch), console, memory_mib << 20)
                with console.step(f"write {target.name}"), WheelWriter(target) as writer:
                    _write(plan, archive, packed, writer)
    except OSError as error:
        raise NoSpace(
            f"{error.filename or dest} cannot be written: {error.strerror}", remedy="choose another --dest"
        ) from error
    return target


def _take_over(wheel: Path, target: Path) -> Path:
    if not (target.exists() and target.samefile(wheel)):
        beside = target.with_name(f".{target.name}.{os.getpid()}.part")
        shutil.copyfile(wheel, beside)
        beside.replace(target)
    return target


def _check_space(plan: RepairPlan, archive: WheelArchive, dest: Path) -> None:
    """Raise :class:`NoSpace` unless the result fits, with what comes in: once deflated here and once in the result."""
    taken = sum(graft.source.stat().st_size for graft in (*plan.grafts, *plan.data))
    needed = archive.path.stat().st_size + 2 * taken
    free = shutil.disk_usage(dest).free
    if free < needed:
        raise NoSpace(f"{dest} has {free >> 20} MiB free; the repair needs {needed >> 20}", remedy="choose --dest")


def _made(plan: RepairPlan, archive: WheelArchive, scratch: Path, console: Console, memory: int) -> dict[str, Packed]:
    """Files that change and files that come in, by member."""
    edits = {elf.member: elf.edit for elf in plan.elves if elf.edit}
    grafts = (*plan.grafts, *plan.data)
    if not edits and not grafts:
        return {}
    from rocm_wheels.repair.rewrite import Job, Rewriter  # much to load for a wheel that only gets another tag

    jobs = [Job(g.member, g.source.stat().st_size, edits.pop(g.member, None), g.source) for g in grafts]
    jobs += [Job(member, archive.member(member).size, edit) for member, edit in edits.items()]
    return Rewriter(archive, scratch, plan.anatomies, console, memory).make(jobs)


def _write(plan: RepairPlan, archive: WheelArchive, packed: dict[str, Packed], writer: WheelWriter) -> None:
    rows = {row.path: row for row in archive.record}
    info = archive.dist_info
    texts = licences(plan.grafts)
    rewritten = {
        f"{info}/WHEEL": with_tags(archive.wheel_file, plan.tags),
        f"{info}/METADATA": _metadata(plan, archive, texts),
    }
    replaced = _records(plan, archive, packed)
    for member in archive.members:
        if member.is_directory or member.name == f"{info}/RECORD" or member.name in replaced:
            continue
        if member.name in rewritten:
            writer.add(member.name, rewritten[member.name].encode("utf-8"), mode=member.mode)
        elif member.name in packed:
            writer.add_packed(member.name, packed[member.name], mode=member.mode)
        else:
            writer.copy(archive, member, _row(member.name, rows))
    for graft in plan.grafts:
        writer.add_packed(graft.member, packed[graft.member], mode=0o755)
    for graft in plan.data:
        writer.add_packed(graft.member, packed[graft.member])
    for name, file in sorted(texts.items()):
        if f"{info}/{name}" not in archive:
            writer.add(f"{info}/{name}", file.read_bytes())
    for name, content in replaced.items():
        writer.add(name, content)


def _records(plan: RepairPlan, archive: WheelArchive, packed: dict[str, Packed]) -> dict[str, bytes]:
    """What .dist-info says of the repair, with what it said of earlier ones."""
    found = {}
    if plan.grafts:
        name = f"{archive.dist_info}/{SBOM}"
        found[name] = sbom(plan.grafts, archive.read(name) if name in archive else b"")
    if plan.recorded:
        from rocm_wheels.repair.manifest import MANIFEST, manifest

        found[f"{archive.dist_info}/{MANIFEST}"] = manifest(plan, archive, packed)
    return found


def _row(name: str, rows: dict[str, Row]) -> Row:
    """The member's row. One without a hash is not blessed with one: its content was never vouched for."""
    return rows.get(name) or Row(name, "", None)


def _metadata(plan: RepairPlan, archive: WheelArchive, texts: dict[str, Path]) -> str:
    text = with_headers(archive.metadata, "Requires-Dist", plan.requires_dist)
    text = with_headers(text, "Requires-External", plan.requires_external)
    if text.startswith(("Metadata-Version: 2.4", "Metadata-Version: 2.5")):
        files = [name.removeprefix("licenses/") for name in sorted(texts)]
    else:  # before 2.4 setuptools listed them by path in .dist-info
        files = sorted(texts)
    return with_headers(text, "License-File", files)
