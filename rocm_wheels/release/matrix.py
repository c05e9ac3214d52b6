"""What this version of the project knows of releases and images, and how a row is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocm_wheels.errors import UnknownImage, UnknownPython, UnknownRelease, nearest
from rocm_wheels.release.model import Image, Release


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
                f"{release.name} has no recipe for image {name!r}",
                remedy=f"it builds in: {', '.join(release.images) or 'no image of this project yet'}",
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
