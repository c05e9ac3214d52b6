"""Plans a split of wheels into layers, and carries it out from whatever wheels there are."""

from __future__ import annotations

import posixpath
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.elf.edit import Edit
from rocm_wheels.errors import BaseMismatch, NoRocm
from rocm_wheels.layers.base import Base, merge, read_base
from rocm_wheels.layers.model import CORE, LIBRARIES, LayerOptions, LayersPlan, Piece, WheelPlan, distribution
from rocm_wheels.layers.report import LayersReport, measure_report
from rocm_wheels.layers.split import Split, read_split
from rocm_wheels.layers.write import write_layers
from rocm_wheels.repair import RepairOptions, apply_plan, plan_repair
from rocm_wheels.repair.facts import ElfFacts
from rocm_wheels.repair.model import Need
from rocm_wheels.repair.providers import SDK_LAYOUTS, is_rocm, stem
from rocm_wheels.repair.rpath import search_path
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.metadata import file_name, headers, retagged
from rocm_wheels.wheel.tags import measure

_HASHED = re.compile(r"^(lib[\w+]+)-[0-9a-f]{8}(\.so[\d.]*)$")


def make_layers(
    wheels: Sequence[Path], options: LayerOptions, dest: Path, console: Console, *, memory_mib: int = 512
) -> LayersReport:
    """Split ``wheels`` into layers below ``dest``.

    Fat wheels are split as they are. Of a distribution that carries no ROCm yet one wheel is first repaired as a fat
    one with the ROCm of this machine, and its other wheels are laid over the same base.

    Raises what :func:`plan_layers` and :func:`rocm_wheels.repair.plan_repair` raise.
    """
    dest.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rocm-layers-", dir=dest) as scratch:
        plan = plan_layers(_with_rocm(wheels, options, Path(scratch), console, memory_mib), options, memory_mib)
        written = write_layers(plan, dest, console, memory_mib=memory_mib)
        for given, framework in zip(wheels, plan.frameworks, strict=True):
            _carry_manifest(given, dest / framework.name)
        return measure_report(plan, written, wheels)


def _carry_manifest(given: Path, result: Path) -> None:
    """The build's manifest beside a wheel goes with it; publishing completes it."""
    manifest, target = given.with_suffix(".manifest.json"), result.with_suffix(".manifest.json")
    if manifest.is_file() and manifest != target:
        shutil.copyfile(manifest, target)


def _with_rocm(
    wheels: Sequence[Path], options: LayerOptions, scratch: Path, console: Console, memory_mib: int
) -> list[Path]:
    """``wheels`` with one of each distribution made fat where none of it is."""
    if options.base:
        return list(wheels)
    splits = [read_split(path, memory_mib) for path in wheels]
    carried = {_name(s.wheel) for s in splits if s.layers}
    made: list[Path] = []
    for split in splits:
        if split.layers or not split.needs or _name(split.wheel) in carried:
            made.append(split.wheel)
            continue
        carried.add(_name(split.wheel))
        with console.step(f"graft the ROCm of this machine into {split.wheel.name}"):
            fat = RepairOptions(mode="fat", archs=options.archs, lib_dirs=options.lib_dirs)
            made.append(apply_plan(plan_repair(split.wheel, fat, memory_mib=memory_mib), scratch, console))
    return made


def _name(wheel: Path) -> str:
    return wheel.name.partition("-")[0].lower()


def plan_layers(wheels: Sequence[Path], options: LayerOptions, memory_mib: int = 512) -> LayersPlan:
    """The plan for ``wheels``, of which at least one carries ROCm unless ``options.base`` is given.

    Raises :class:`NoRocm` for a wheel that has nothing to do with ROCm or carries it under hashed names,
    :class:`LayersDiffer` for wheels whose ROCm is not the same, :class:`BaseMismatch` for a base that lacks what a
    wheel needs, and the errors of reading.
    """
    splits = [read_split(path, memory_mib) for path in wheels]
    for split in splits:
        _check(split)
    if not options.base and not any(split.layers for split in splits):
        raise NoRocm(
            "none of these wheels carries ROCm yet",
            remedy="leave out --dry-run, which lets one be repaired first, or run `invoke repair --mode fat`",
        )
    pieces: tuple[Piece, ...] = ()
    if options.base:
        base = read_base(options.base)
    else:
        base, pieces = merge([s for s in splits if s.layers], options.rocm)
    facts = {s.place(m): s.elves[m] for s in reversed(splits) for m in s.layers if m in s.elves}
    base_plans = _base_plans(base, pieces, facts)
    frameworks = tuple(_framework(split, base, options) for split in splits)
    return LayersPlan(base_plans, frameworks)


def _check(split: Split) -> None:
    if split.layers or split.needs:
        return
    hashed = sorted(
        posixpath.basename(m)
        for m in split.elves
        if (found := _HASHED.match(posixpath.basename(m))) and is_rocm(found[1] + found[2])
    )
    if hashed:
        raise NoRocm(
            f"{split.wheel.name} carries ROCm under hashed names ({', '.join(hashed[:3])}), which cannot be shared: "
            "ROCm opens its libraries by name",
            remedy="split the wheel as it was before that repair",
        )
    raise NoRocm(f"{split.wheel.name} neither carries nor needs ROCm", remedy="publish it as it is")


def _base_plans(base: Base, pieces: Sequence[Piece], facts: Mapping[str, ElfFacts]) -> tuple[WheelPlan, ...]:
    by_layer: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_layer.setdefault(piece.layer, []).append(piece)
    plans = []
    platform = ""
    for layer in base.layers if pieces else ():
        elves = [replace(facts[p.place], name=p.place) for p in by_layer[layer] if p.place in facts]
        if elves or not platform:
            platform = measure(elves, base.libraries.keys()).policy.tag
        name = f"{distribution(layer).replace('-', '_')}-{base.version}-py3-none-{platform}.whl"
        needed = [] if layer == CORE else [LIBRARIES] if layer != LIBRARIES else [CORE]
        plans.append(
            WheelPlan(
                name=name,
                layer=layer,
                requirement=base.requirement(layer),
                tags=(f"py3-none-{platform}",),
                requires=tuple(base.requirement(n) for n in needed if n in base.layers),
                source=by_layer[layer][0].wheel,
                pieces=tuple(by_layer[layer]),
            )
        )
    return tuple(plans)


@dataclass(frozen=True)
class _Own:
    """What stays in the framework's wheel."""

    elves: Mapping[str, ElfFacts]
    by_name: Mapping[str, str]
    folders: Collection[str]


def _framework(split: Split, base: Base, options: LayerOptions) -> WheelPlan:
    elves = {member: facts for member, facts in split.elves.items() if member not in split.layers}
    by_name = {posixpath.basename(member): member for member in sorted(elves, reverse=True)}
    own = _Own(elves, by_name, {posixpath.dirname(member) for member in elves})
    _check_base(split, own, base)
    with WheelArchive.open(split.wheel) as archive:
        version, old_tags = archive.version, archive.tags
        name = headers(archive.metadata, "Name")[0]
    platform = measure(elves.values(), {*base.libraries, *by_name}).policy.tag
    needed = _needed_layers(split, own, base)
    devices = [layer for layer in base.layers if layer not in (CORE, LIBRARIES)] if LIBRARIES in needed else []
    required = needed if options.device_extras else [*needed, *devices]
    return WheelPlan(
        name=file_name(split.wheel.name, (platform,)),
        layer="",
        requirement=f"{name}=={version}",
        tags=retagged(old_tags, (platform,)),
        requires=tuple(base.requirement(layer) for layer in required),
        extras=tuple((d.removeprefix("device-"), base.requirement(d)) for d in devices)
        if options.device_extras
        else (),
        source=split.wheel,
        pieces=tuple(_stays(split, own, base)),
    )


def _check_base(split: Split, own: _Own, base: Base) -> None:
    outside = {n for facts in own.elves.values() for n in facts.needed if n not in own.by_name}
    moved = {posixpath.basename(member) for member in split.layers}
    missing = sorted(n for n in outside if (is_rocm(n) or n in moved) and n not in base.libraries)
    if missing:
        near = sorted(n for n in base.libraries if stem(n) in {stem(m) for m in missing})
        raise BaseMismatch(
            f"{split.wheel.name} needs {', '.join(missing)}, which the base {base.version} does not have"
            + (f"; it has {', '.join(near)}" if near else ""),
            remedy="give all wheels that shall share one base in the same call, without --base",
        )
    for member in split.layers:
        there = base.origins.get(split.place(member))
        if there is None:
            raise BaseMismatch(
                f"{split.wheel.name} carries {member}, which the base {base.version} does not have",
                remedy="make a new base of all wheels in one call, or repair this one for the GPU targets of the base",
            )
        if there != split.digests[member]:
            raise BaseMismatch(
                f"{split.wheel.name} was built with another {posixpath.basename(member)} than the one in the base "
                f"{base.version}",
                remedy="repair the wheel with the ROCm that the base was made of, or make a new base of both",
            )


def _needed_layers(split: Split, own: _Own, base: Base) -> list[str]:
    """Layers whose libraries are needed, or were in the wheel before; CORE first."""
    names = {n for facts in own.elves.values() for n in facts.needed} | {posixpath.basename(m) for m in split.layers}
    places = [base.libraries[name] for name in names if name in base.libraries]
    layers = [layer for layer in (CORE, LIBRARIES) if layer in base.layers]
    folders = {place.partition("/")[0] for place in places}
    return [layer for layer in layers if layer == CORE or f"_{distribution(layer).replace('-', '_')}" in folders]


def _stays(split: Split, own: _Own, base: Base) -> list[Piece]:
    pieces = []
    for member in split.digests:
        if member in split.layers:
            continue
        edit = _edit(member, own.elves[member], split, own, base) if member in own.elves else None
        pieces.append(Piece(split.wheel, member, "", member, split.digests[member], split.sizes[member], edit))
    return pieces


def _edit(member: str, facts: ElfFacts, split: Split, own: _Own, base: Base) -> Edit | None:
    """The RPATH that leads to the layers where it led to the ROCm in the wheel, or where ROCm is needed."""
    if ".data/" in member:
        return None  # lies somewhere else once it is installed
    here = posixpath.dirname(member)
    targets = {e: _target(here, e) for e in facts.search_path.split(":")}
    outside = [
        posixpath.dirname(base.libraries[n]) for n in facts.needed if n in base.libraries and n not in own.by_name
    ]
    seeks = bool(outside) or (bool(split.layers) and split.home in targets.values())
    layouts = dict.fromkeys((*base.folders, *outside)) if seeks else {}
    old = ":".join(entry for entry, target in targets.items() if target not in SDK_LAYOUTS)
    needs = [Need(n, "wheel", own.by_name[n]) for n in facts.needed if n in own.by_name]
    wanted = search_path(member, needs, old, folders=own.folders, layouts=layouts, absolute=())
    rpath = None if wanted == facts.search_path and (facts.has_rpath or not seeks) else wanted
    if rpath is None and not facts.stack_executable:
        return None
    return Edit(rpath=rpath, force_rpath=rpath is not None, clear_stack=facts.stack_executable)


def _target(here: str, entry: str) -> str:
    relative = entry.replace("${ORIGIN}", "$ORIGIN").removeprefix("$ORIGIN").strip("/")
    return posixpath.normpath(posixpath.join(here, relative))
