"""A wheel file as the publish room sees it: name, version, tags, metadata, size."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from rocm_wheels.errors import BrokenWheel, UsageError
from rocm_wheels.wheel import WheelArchive

CHUNK = 1 << 20


@dataclass(frozen=True)
class Dist:
    """One wheel: what its file name and its METADATA say."""

    path: Path
    name: NormalizedName
    version: Version
    tags: frozenset[Tag]
    metadata: bytes
    size: int

    @property
    def filename(self) -> str:
        """The file's name, the key under which an index knows it."""
        return self.path.name

    @property
    def raw(self) -> RawMetadata:
        """METADATA as a dictionary."""
        return parse_email(self.metadata)[0]

    @property
    def requires(self) -> tuple[Requirement, ...]:
        """``Requires-Dist``, in the order of the file; raises :class:`BrokenWheel`."""
        try:
            return tuple(Requirement(line) for line in self.raw.get("requires_dist", []))
        except InvalidRequirement as error:
            raise BrokenWheel(f"{self.filename}: Requires-Dist: {error}", remedy=f"invoke verify {self.path}") from None

    @property
    def requirement(self) -> str:
        """``name==version``, as a requirements file pins it."""
        return f"{self.name}=={self.version}"

    @property
    def requires_python(self) -> str:
        """``Requires-Python`` or ""."""
        return self.raw.get("requires_python", "")


def open_dist(path: Path) -> Dist:
    """Read name and METADATA of a wheel; the payload stays untouched.

    Raises :class:`UsageError` when there is no such file, :class:`BrokenWheel` or :class:`BrokenArchive` when it is
    no wheel.
    """
    if not path.is_file():
        raise UsageError(f"{path} does not exist", remedy="`nox -s build` leaves wheels in dist/")
    with WheelArchive.open(path) as archive:
        metadata = archive.read(f"{archive.dist_info}/METADATA")
        name = canonicalize_name(archive.distribution)
        return Dist(path, name, archive.version, archive.tags, metadata, path.stat().st_size)


def sha256_of(path: Path, advance: Callable[[int], None] = lambda _: None) -> str:
    """SHA-256 of a file in hex, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            digest.update(piece)
            advance(len(piece))
    return digest.hexdigest()


def in_dependency_order(dists: Iterable[Dist]) -> tuple[Dist, ...]:
    """The set with every wheel after the wheels it requires, otherwise by file name; cycles are cut by name.

    A colleague who installs while the set is half published must never get a wheel whose companions are missing.
    """
    by_name: dict[NormalizedName, list[Dist]] = {}
    for dist in sorted(dists, key=lambda d: d.filename):
        by_name.setdefault(dist.name, []).append(dist)
    ordered: list[Dist] = []
    seen: set[NormalizedName] = set()

    def visit(name: NormalizedName) -> None:
        if name in seen or name not in by_name:
            return
        seen.add(name)
        for needed in sorted(requirement_names(by_name[name])):
            visit(needed)
        ordered.extend(by_name[name])

    for name in by_name:
        visit(name)
    return tuple(ordered)


def requirement_names(dists: Iterable[Dist]) -> set[NormalizedName]:
    """Normalized names of everything that these wheels may require."""
    return {canonicalize_name(requirement.name) for dist in dists for requirement in dist.requires}
