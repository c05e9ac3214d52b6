"""What this version of the project knows of releases and images, and how a row is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from rocm_wheels.errors import UnknownImage, UnknownRelease, nearest
from rocm_wheels.release.model import Image, OtherWheel, Release


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All images and releases that this version of the project knows."""

    images: Mapping[str, Image]
    releases: tuple[Release, ...]
    wheels: tuple[OtherWheel, ...] = ()

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

    def image(self, name: str) -> Image:
        """Image ``name``; raises :class:`UnknownImage` naming the nearest known ones."""
        if name not in self.images:
            raise UnknownImage(f"no builder image is called {name!r}", remedy=nearest(name, self.images))
        return self.images[name]

    def needs_rocm(self, distribution: str, version: str) -> OtherWheel | None:
        """Which ROCm a wheel of another framework needs, or None for a wheel without a row."""
        name = canonicalize_name(distribution)
        rows = (w for w in self.wheels if w.distribution == name and SpecifierSet(w.versions).contains(version))
        return next(rows, None)
