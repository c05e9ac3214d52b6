"""Reads ``data/*.toml`` into :class:`Matrix` and refuses rows that are unknown, incomplete or contradictory.

``images.toml`` holds one table per builder image, every other file one framework with ``[[release]]`` rows.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rocm_wheels.errors import MatrixError, UnknownImage, UnknownPython, UnknownRelease, nearest
from rocm_wheels.gpu import check_arch
from rocm_wheels.release.model import Image, Release, Source

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All images and releases that this version of the project knows."""

    images: Mapping[str, Image]
    releases: tuple[Release, ...]

    def release(self, name: str) -> Release:
        """The row called ``name``: ``pytorch-2.6.0``, ``2.6.0`` or a framework that has a single row.

        Raises :class:`UnknownRelease` naming the nearest known ones.
        """
        found = [r for r in self.releases if name in (r.name, r.version, r.framework)]
        if len(found) == 1:
            return found[0]
        names = [word for r in (found or self.releases) for word in (r.name, r.version)]
        problem = "names more than one release" if found else "is not a known release"
        raise UnknownRelease(f"{name!r} {problem}", remedy=f"{nearest(name, names)} `invoke releases` lists them")

    def image(self, name: str, release: Release) -> Image:
        """Image ``name`` if ``release`` builds in it; raises :class:`UnknownImage`."""
        if name not in self.images:
            raise UnknownImage(f"no builder image is called {name!r}", remedy=nearest(name, self.images))
        if name not in release.images:
            raise UnknownImage(
                f"{release.name} has no recipe for image {name!r}", remedy=f"it builds in: {', '.join(release.images)}"
            )
        return self.images[name]

    def check_python(self, python: str, release: Release, image: Image) -> None:
        """Raise :class:`UnknownPython` unless ``release`` supports ``python`` and ``image`` carries it."""
        if python not in release.pythons:
            known = ", ".join(release.pythons)
            raise UnknownPython(f"{release.name} does not support Python {python}", remedy=f"it supports {known}")
        if python not in image.pythons:
            both = [p for p in release.pythons if p in image.pythons]
            raise UnknownPython(
                f"image {image.name} carries no Python {python}", remedy=f"{release.name} there: {', '.join(both)}"
            )


def load_matrix(data: Path = DATA) -> Matrix:
    """Read and check every data file; raises :class:`MatrixError` naming the file and row."""
    images = {
        name: _build(Image, {"name": name, **row}, f"images.toml [{name}]")
        for name, row in _read(data / "images.toml").items()
    }
    releases = []
    for path in sorted(data.glob("*.toml")):
        if path.name == "images.toml":
            continue
        table = _read(path)
        shared = table.pop("framework")
        for row in table.pop("release", []):
            where = f"{path.name} {row.get('version', '(no version)')}"
            releases.append(_build(Release, {**shared, **row}, where))
        if table:
            raise MatrixError(f"{path.name}: unknown tables {', '.join(table)}")
    for release in releases:
        _check_release(release, images)
    _check_unique(releases)
    return Matrix(images=images, releases=tuple(releases))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MatrixError(f"{path}: {error}") from error


def _build(cls: Any, row: Mapping[str, Any], where: str) -> Any:
    """An instance of dataclass ``cls`` from a TOML table, with every key known and every type right."""
    hints = get_type_hints(cls)
    for key in row:
        if key not in hints:
            raise MatrixError(f"{where}: unknown key {key!r}", remedy=nearest(key, hints))
    values = {key: _convert(hints[key], value, f"{where}: {key}") for key, value in row.items()}
    required = {f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}
    if missing := required - values.keys():
        raise MatrixError(f"{where}: missing {', '.join(sorted(missing))}")
    return cls(**values)


def _convert(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _build(kind, value, where)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if isinstance(value, dict):  # a TOML table stands for ordered pairs
            return tuple((str(k), str(v)) for k, v in value.items())
        if isinstance(value, list):
            return tuple(_convert(item, v, where) for v in value)
    elif get_args(kind) and not isinstance(kind, UnionType):  # Literal
        if value in get_args(kind):
            return value
        raise MatrixError(f"{where} is {value!r}", remedy=nearest(str(value), get_args(kind)))
    elif isinstance(value, kind):
        return value
    raise MatrixError(f"{where} has the wrong type: {value!r}")


def _check_release(release: Release, images: Mapping[str, Image]) -> None:
    where = release.name
    for image in release.images:
        if image not in images:
            raise MatrixError(f"{where}: unknown image {image!r}", remedy=nearest(image, images))
    if not release.archs:
        raise MatrixError(f"{where}: the default arch list is empty")
    for arch in release.archs:
        check_arch(arch)
    for python in release.pythons:
        if not re.fullmatch(r"3\.\d+t?", python):
            raise MatrixError(f"{where}: {python!r} is not a Python version such as 3.13")
    _check_source(release.source, where)
    if not set(release.recipe.hip_libraries) <= set(release.recipe.required_files):
        raise MatrixError(f"{where}: hip_libraries must be among required_files")


def _check_source(source: Source, where: str) -> None:
    needed = {
        "git": ("url", "commit"),
        "archive": ("archives",),
        "debian": ("package", "version", "suite", "sha256"),
        "directory": ("path",),
    }[source.kind]
    if missing := [name for name in needed if not getattr(source, name)]:
        raise MatrixError(f"{where}: a {source.kind} source needs {', '.join(missing)}")
    if source.kind == "git" and not re.fullmatch(r"[0-9a-f]{40}", source.commit):
        raise MatrixError(f"{where}: {source.commit!r} is not a full commit id")
    for digest in [a.sha256 for a in source.archives] + ([source.sha256] if source.sha256 else []):
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise MatrixError(f"{where}: {digest!r} is not a sha256")


def _check_unique(releases: list[Release]) -> None:
    seen: set[str] = set()
    for release in releases:
        if release.name in seen:
            raise MatrixError(f"{release.name} has two rows")
        seen.add(release.name)
