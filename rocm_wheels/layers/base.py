"""The base of a set: which library lies where in which base wheel, made from fat wheels or read from base wheels."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rocm_wheels.elf.edit import Edit
from rocm_wheels.errors import BaseMismatch, LayersDiffer
from rocm_wheels.layers.model import CORE, LIBRARIES, Piece, distribution, folder
from rocm_wheels.layers.split import Split
from rocm_wheels.repair.facts import ElfFacts
from rocm_wheels.repair.providers import is_rocm, rocm_major
from rocm_wheels.repair.rpath import origin
from rocm_wheels.wheel import WheelArchive

ORIGINS = "rocm-layers.json"
_LAYOUT = 1  # raised when the same files would be laid or edited in another way
_RELEASE = re.compile(r"rocm(\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Base:
    """``libraries`` is the place of every library by its file name, ``origins`` the digest by place before any edit."""

    version: str
    layers: tuple[str, ...]
    libraries: Mapping[str, str]
    origins: Mapping[str, str]

    @property
    def folders(self) -> tuple[str, ...]:
        """Directories with libraries that frameworks have to search, HIP's first."""
        return tuple(f"{folder(layer)}/lib" for layer in (CORE, LIBRARIES) if layer in self.layers)

    def requirement(self, layer: str) -> str:
        """The exact pin of a layer."""
        return f"{distribution(layer)}=={self.version}"


def merge(splits: Sequence[Split], rocm: str) -> tuple[Base, tuple[Piece, ...]]:
    """The base that all of ``splits`` share and the files that make it, each taken from the first wheel that has it.

    ``rocm`` is the ROCm release; "" reads it from the wheels' versions, else from HIP's SONAME.
    Raises :class:`LayersDiffer` when two wheels carry different files for one place.
    """
    pieces: dict[str, Piece] = {}
    facts: dict[str, ElfFacts] = {}
    for split in splits:
        for member, layer in split.layers.items():
            place, digest = split.place(member), split.digests[member]
            known = pieces.setdefault(place, Piece(split.wheel, member, layer, place, digest, split.sizes[member]))
            if known.digest != digest:
                raise LayersDiffer(
                    f"{known.wheel.name} and {split.wheel.name} carry different files for {place}",
                    remedy="repair both wheels with the same ROCm and the same version of this tool, then split again",
                )
            if member in split.elves:
                facts.setdefault(place, split.elves[member])
    libraries = {posixpath.basename(place): place for place in sorted(facts)}
    edited = [_edited(piece, facts.get(piece.place), libraries) for _, piece in sorted(pieces.items())]
    origins = {piece.place: piece.digest for piece in edited}
    release = rocm or _release(splits)
    digest = hashlib.sha256(json.dumps([_LAYOUT, origins], sort_keys=True).encode()).hexdigest()
    layers = tuple(sorted({piece.layer for piece in edited}, key=lambda n: (n not in (CORE, LIBRARIES), n)))
    return Base(f"{release}+b{digest[:12]}", layers, libraries, origins), tuple(edited)


def read_base(wheels: Sequence[Path]) -> Base:
    """The base that these base wheels are; raises :class:`BaseMismatch` when they are not one set of ours."""
    versions: set[str] = set()
    layers: set[str] = set()
    origins: dict[str, str] = {}
    for path in wheels:
        with WheelArchive.open(path) as archive:
            member = f"{archive.dist_info}/{ORIGINS}"
            if member not in archive:
                raise BaseMismatch(f"{path.name} is no base wheel of this tool", remedy="invoke layers makes them")
            found = json.loads(archive.read(member))
        versions.add(found["version"])
        layers.add(found["layer"])
        origins.update(found["files"])
    if len(versions) != 1:
        raise BaseMismatch(
            f"the base wheels are of several sets: {', '.join(sorted(versions)) or 'none was given'}",
            remedy="give the wheels of one version",
        )
    libraries = {posixpath.basename(p): p for p in sorted(origins) if ".so" in posixpath.basename(p)}
    ordered = tuple(sorted(layers, key=lambda n: (n not in (CORE, LIBRARIES), n)))
    return Base(versions.pop(), ordered, libraries, origins)


def _edited(piece: Piece, facts: ElfFacts | None, libraries: Mapping[str, str]) -> Piece:
    """The piece with the RPATH that leads to its needs in this and the other base wheels.

    DT_RPATH, so that LD_LIBRARY_PATH cannot win; its own directory first, since ROCm opens siblings by name.
    """
    if facts is None:
        return piece
    here = posixpath.dirname(piece.place)
    targets = [here, f"{folder(piece.layer)}/lib", f"{folder(CORE)}/lib"]
    targets += [posixpath.dirname(libraries[name]) for name in facts.needed if name in libraries]
    wanted = ":".join(dict.fromkeys(origin(here, target) for target in targets))
    rpath = None if facts.has_rpath and facts.search_path == wanted else wanted
    if rpath is None and not facts.stack_executable:
        return piece
    edit = Edit(rpath=rpath, force_rpath=rpath is not None, clear_stack=facts.stack_executable)
    return Piece(piece.wheel, piece.member, piece.layer, piece.place, piece.digest, piece.size, edit)


def _release(splits: Iterable[Split]) -> str:
    for split in splits:
        name = split.wheel.name.split("-")[1]
        local = Version(name).local or ""
        if match := _RELEASE.search(local):
            return match[1]
    names = [posixpath.basename(m) for split in splits for m in split.layers if is_rocm(posixpath.basename(m))]
    return str(rocm_major(names) or 0)
