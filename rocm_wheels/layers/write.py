"""Writes what a split decided: members move as their compressed bytes, then repair edits the libraries."""

from __future__ import annotations

import json
import posixpath
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from packaging.tags import parse_tag

from rocm_wheels.console import Console
from rocm_wheels.layers import texts
from rocm_wheels.layers.base import ORIGINS
from rocm_wheels.layers.model import LayersPlan, Piece, WheelPlan
from rocm_wheels.repair import RepairPlan, apply_plan
from rocm_wheels.repair.model import ElfPlan
from rocm_wheels.wheel import WheelArchive, WheelWriter
from rocm_wheels.wheel.metadata import headers, with_headers, with_tags
from rocm_wheels.wheel.record import Row
from rocm_wheels.wheel.tags import Measured, find_policy

_SBOM = "sboms/rocm-wheels.cdx.json"
_REPAIRED = "rocm-wheels-repair.json"  # what repair grafted, which is no longer true of a split wheel


def write_layers(plan: LayersPlan, dest: Path, console: Console, *, memory_mib: int = 512) -> tuple[Path, ...]:
    """Write every wheel of ``plan`` into ``dest``; the same plan gives the same bytes.

    Raises :class:`EditFailed`, :class:`NoSpace` and the errors of reading; each wheel is renamed in when it is whole.
    """
    dest.mkdir(parents=True, exist_ok=True)
    written = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".rocm-layers-", dir=dest)))
        sources = sorted({piece.wheel for wheel in plan.wheels for piece in wheel.pieces})
        archives = {path: stack.enter_context(WheelArchive.open(path)) for path in sources}
        for wheel in plan.wheels:
            with console.step(f"lay {wheel.name}"):
                raw = scratch / wheel.name
                with WheelWriter(raw) as writer:
                    _Wheel(wheel, plan, archives).write(writer)
                written.append(apply_plan(_as_repair(wheel, raw), dest, console, memory_mib=memory_mib))
                raw.unlink()
    return tuple(written)


def _as_repair(wheel: WheelPlan, raw: Path) -> RepairPlan:
    """The edits of ``wheel`` as a plan that repair carries out."""
    policy = find_policy(next(iter(parse_tag(wheel.tags[0]))).platform)
    assert policy is not None, wheel.tags
    return RepairPlan(
        wheel=raw,
        mode="rpath",
        package="",
        elves=tuple(ElfPlan(place, (), edit, ("layers",)) for place, edit in sorted(wheel.edits.items())),
        grafts=(),
        data=(),
        measured=Measured(policy, ()),
        tags=wheel.tags,
        name=wheel.name,
        requires_external=(),
        retags=False,
    )


class _Wheel:
    """One wheel of the plan on its way into the writer."""

    def __init__(self, wheel: WheelPlan, plan: LayersPlan, archives: Mapping[Path, WheelArchive]) -> None:
        self.wheel = wheel
        self.archive = archives[wheel.source]
        self.archives = archives
        self.moved = {(p.wheel, p.member): p.place for w in plan.base for p in w.pieces}
        if wheel.layer:
            self.info = f"{wheel.name.rsplit('-', 3)[0]}.dist-info"
        else:
            self.info = self.archive.dist_info

    def write(self, writer: WheelWriter) -> None:
        """All members: files as they are, .dist-info as it has to be."""
        if self.wheel.layer:
            self._copy(writer, self.wheel.pieces)
            self._write_base_info(writer)
        else:
            self._write_framework(writer)

    def _copy(self, writer: WheelWriter, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            archive = self.archives[piece.wheel]
            row = Row(piece.place, piece.digest, piece.size if piece.digest else None)
            writer.copy(archive, archive.member(piece.member), row, name=piece.place)

    def _components(self, sources: Sequence[Path]) -> dict[tuple[Path, str], dict[str, Any]]:
        """SBOM entries by wheel and member."""
        found: dict[tuple[Path, str], dict[str, Any]] = {}
        for path in sources:
            archive = self.archives[path]
            sboms = [m.name for m in archive.members if m.name.startswith(f"{archive.dist_info}/sboms/")]
            listed = texts.components(archive.read(name) for name in sboms if name.endswith(".cdx.json"))
            found.update({(path, member): component for member, component in listed.items()})
        return found

    def _write_base_info(self, writer: WheelWriter) -> None:
        sources = sorted({piece.wheel for piece in self.wheel.pieces})
        known = self._components(sources)
        placed = {p.place: known[p.wheel, p.member] for p in self.wheel.pieces if (p.wheel, p.member) in known}
        licences = self._licences(sources, placed)
        name, _, version = self.wheel.requirement.partition("==")
        metadata = texts.base_metadata(name, version, self.wheel.layer, self.wheel.requires, sorted(licences))
        origins = {p.place: p.digest for p in self.wheel.pieces}
        manifest = {"version": version, "layer": self.wheel.layer, "files": origins}
        writer.add(f"{self.info}/METADATA", metadata.encode("utf-8"))
        writer.add(f"{self.info}/WHEEL", texts.base_wheel_file(self.wheel.tags).encode("utf-8"))
        writer.add(f"{self.info}/{ORIGINS}", (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode("utf-8"))
        for place, content in sorted(licences.items()):
            writer.add(f"{self.info}/licenses/{place}", content)
        if placed:
            writer.add(f"{self.info}/{_SBOM}", texts.sbom(placed))

    def _licences(self, sources: Sequence[Path], placed: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
        """Licence texts by their path below ``licenses/``: those of the packages, else all that the fat wheel has."""
        packages = {component["name"] for component in placed.values()}
        found: dict[str, bytes] = {}
        for path in sources:
            archive = self.archives[path]
            folder = f"{archive.dist_info}/licenses/"
            texts_there = [m.name for m in archive.members if m.name.startswith(folder)]
            own = [n for n in texts_there if posixpath.basename(n).removesuffix(".txt") in packages]
            for member in own if packages else texts_there:
                found.setdefault(member.removeprefix(folder), archive.read(member))
        return found

    def _write_framework(self, writer: WheelWriter) -> None:
        known = self._components([self.wheel.source])
        gone = {member for path, member in self.moved if path == self.wheel.source}
        gone |= {member for _, member in known} - {piece.member for piece in self.wheel.pieces}
        stays = {key[1]: c for key, c in known.items() if key[1] not in gone}
        packages = {c["name"] for key, c in known.items() if key[1] in gone} - {c["name"] for c in stays.values()}
        dropped = {f"{self.info}/licenses/rocm/{package}.txt" for package in packages} | {f"{self.info}/{_REPAIRED}"}
        rewritten = {f"{self.info}/METADATA", f"{self.info}/WHEEL", f"{self.info}/RECORD"}
        sboms = {f"{self.info}/{_SBOM}"} if known else set()
        self._copy(writer, [p for p in self.wheel.pieces if p.member not in dropped | rewritten | sboms])
        writer.add(f"{self.info}/METADATA", self._metadata(packages).encode("utf-8"))
        writer.add(f"{self.info}/WHEEL", with_tags(self.archive.wheel_file, self.wheel.tags).encode("utf-8"))
        if stays:
            writer.add(f"{self.info}/{_SBOM}", texts.sbom(stays))

    def _metadata(self, packages: set[str]) -> str:
        lines = {f"{folder}{package}.txt" for package in packages for folder in ("rocm/", "licenses/rocm/")}
        text = texts.without_headers(self.archive.metadata, "License-File", lines.__contains__)
        text = texts.without_rocm_externals(text)
        known = headers(text, "Provides-Extra")
        text = with_headers(text, "Provides-Extra", [arch for arch, _ in self.wheel.extras if arch not in known])
        extras = [f'{requirement}; extra == "{arch}"' for arch, requirement in self.wheel.extras]
        return with_headers(text, "Requires-Dist", [*self.wheel.requires, *extras])
