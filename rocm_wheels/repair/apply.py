"""Carries a plan out: every file is laid first, then edited, then the wheel is written in one pass."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.elf.edit import apply_edit, find_patchelf
from rocm_wheels.repair.model import Graft, RepairPlan
from rocm_wheels.wheel import WheelArchive, WheelWriter
from rocm_wheels.wheel.metadata import with_headers, with_tags
from rocm_wheels.wheel.record import Row

_LICENCES = "licenses/rocm"
_SBOM = "sboms/rocm-wheels.cdx.json"


def apply_plan(plan: RepairPlan, dest: Path, console: Console) -> Path:
    """Write the repaired wheel into directory ``dest`` and return its path.

    A wheel that needs nothing is copied byte for byte. Raises :class:`EditFailed` and :class:`NoSpace`; ``dest`` then
    holds no new file.
    """
    dest.mkdir(parents=True, exist_ok=True)
    target = dest / plan.name
    if plan.is_noop and not plan.requires_external:
        if not (target.exists() and target.samefile(plan.wheel)):
            beside = target.with_name(f".{target.name}.part")
            shutil.copyfile(plan.wheel, beside)
            beside.replace(target)
        return target
    with tempfile.TemporaryDirectory(prefix=".rocm-wheels-", dir=dest) as scratch:
        with WheelArchive.open(plan.wheel) as archive:
            edited = _edit_all(plan, archive, Path(scratch), console)
            with console.step(f"write {target.name}"), WheelWriter(target) as writer:
                _write(plan, archive, edited, writer)
    return target


def _edit_all(plan: RepairPlan, archive: WheelArchive, scratch: Path, console: Console) -> dict[str, Path]:
    """Lay the files that change or come in, then edit them in parallel; member → edited file."""
    sources = {graft.member: graft.source for graft in plan.grafts}
    changed = [elf for elf in plan.elves if elf.edit or elf.member in sources]
    laid: dict[str, Path] = {}
    for number, elf in enumerate(changed):
        file = scratch / f"{number}-{Path(elf.member).name}"
        if elf.member in sources:
            shutil.copyfile(sources[elf.member], file)
        else:
            file.write_bytes(archive.read(elf.member))
        laid[elf.member] = file
    edits = [(laid[elf.member], elf.edit) for elf in changed if elf.edit]
    if not edits:
        return laid
    patchelf = find_patchelf()
    with console.progress("edit libraries", len(edits)) as advance, ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda job: apply_edit(job[0], job[1], patchelf), edits):
            advance(1)
    return laid


def _write(plan: RepairPlan, archive: WheelArchive, edited: dict[str, Path], writer: WheelWriter) -> None:
    rows = {row.path: row for row in archive.record}
    info = archive.dist_info
    licences = _licences(plan)
    rewritten = {
        f"{info}/WHEEL": with_tags(archive.wheel_file, plan.tags),
        f"{info}/METADATA": _metadata(plan, archive, licences),
    }
    for member in archive.members:
        if member.is_directory or member.name == f"{info}/RECORD":
            continue
        if member.name in rewritten:
            writer.add(member.name, rewritten[member.name].encode("utf-8"), mode=member.mode)
        elif member.name in edited:
            writer.add(member.name, edited[member.name].read_bytes(), mode=member.mode)
        else:
            writer.copy(archive, member, _row(archive, member.name, rows))
    for graft in plan.grafts:
        writer.add(graft.member, edited[graft.member].read_bytes(), mode=0o755)
    for graft in plan.data:
        writer.add(graft.member, graft.source.read_bytes())
    for name, file in sorted(licences.items()):
        writer.add(f"{info}/{name}", file.read_bytes())
    if plan.grafts and f"{info}/{_SBOM}" not in archive:
        writer.add(f"{info}/{_SBOM}", _sbom(plan))


def _row(archive: WheelArchive, name: str, rows: dict[str, Row]) -> Row:
    """The member's row. One without a hash is not blessed with one: its content was never vouched for."""
    return rows.get(name) or Row(name, "", None)


def _metadata(plan: RepairPlan, archive: WheelArchive, licences: dict[str, Path]) -> str:
    text = with_headers(archive.metadata, "Requires-External", plan.requires_external)
    if text.startswith(("Metadata-Version: 2.4", "Metadata-Version: 2.5")):
        files = [name.removeprefix("licenses/") for name in sorted(licences)]
    else:  # before 2.4 setuptools listed them by path in .dist-info
        files = sorted(licences)
    return with_headers(text, "License-File", files)


def _licences(plan: RepairPlan) -> dict[str, Path]:
    """Licence texts of what was grafted, by their place in .dist-info."""
    return {f"{_LICENCES}/{g.package}.txt": g.licence for g in plan.grafts if g.licence and g.package}


def _sbom(plan: RepairPlan) -> bytes:
    """A CycloneDX document (PEP 770) of the grafted libraries; the same plan gives the same bytes."""
    components = [_component(graft) for graft in plan.grafts]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "components": components,
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("utf-8")


def _component(graft: Graft) -> dict[str, object]:
    component: dict[str, object] = {
        "type": "library",
        "name": graft.package or graft.source.name,
        "version": graft.version or "unknown",
        "properties": [{"name": "rocm-wheels:file", "value": graft.member}],
    }
    if graft.licence and graft.package:
        component["licenses"] = [{"license": {"name": f"see {_LICENCES}/{graft.package}.txt"}}]
    return component
