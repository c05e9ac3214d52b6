"""Whether a release, an image, a Python and GPU targets go together, and what comes nearest if they do not.

Decided from the release data alone, before anything is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocm_wheels.errors import Impossible
from rocm_wheels.gpu import cards
from rocm_wheels.release.matrix import Matrix
from rocm_wheels.release.model import Image, Release


@dataclass(frozen=True, kw_only=True)
class Combination:
    """What one build is made of; no ``archs`` stand for the default ones."""

    release: Release
    image: Image
    python: str
    archs: tuple[str, ...]

    @property
    def command(self) -> str:
        """The command that builds it."""
        words = f"nox -s build-{self.python} -- --release {self.release.name} --image {self.image.name}"
        return f"{words} --arch '{';'.join(self.archs)}'" if self.archs else words


def check(matrix: Matrix, wish: Combination) -> None:
    """Raise :class:`Impossible` with every reason why ``wish`` cannot be built, and the nearest one that can.

    Raises :class:`UnknownFact` when nobody knows whether it can.
    """
    found = list(_problems(wish))
    if not found:
        return
    near = nearest_possible(matrix, wish)
    raise Impossible(
        f"{wish.release.name} for Python {wish.python} in {wish.image.name} cannot be built:\n  - "
        + "\n  - ".join(found),
        remedy=f"nearest: {near.command}" if near else f"no image of this project builds {wish.release.framework}",
    )


def _problems(wish: Combination) -> Iterator[str]:
    release, image = wish.release, wish.image
    if image.name not in release.images:
        official = release.facts and release.facts.rocm.value
        pairs = f"; the official wheels are for ROCm {', '.join(official)}" if official else ""
        yield f"there is no recipe for {release.name} in image {image.name} (ROCm {image.rocm}){pairs}"
    if release.facts:
        release.facts.pythons.require(f"which Pythons {release.name} supports")
    if wish.python not in release.pythons:
        yield f"{release.name} does not support Python {wish.python}, but {', '.join(release.pythons)}"
    if wish.python not in image.pythons:
        yield f"image {image.name} carries no Python {wish.python}, but {', '.join(image.pythons)}"
    if unknown := [a for a in wish.archs if not image.can_compile(a)]:
        yield f"the compiler of image {image.name} (ROCm {image.rocm}) does not know {', '.join(unknown)}"


def nearest_possible(matrix: Matrix, wish: Combination) -> Combination | None:
    """The combination that can be built and differs least: the release is given up last, the Python first."""

    def distance(found: Combination) -> tuple[object, ...]:
        changed = (
            found.release != wish.release,
            set(found.archs) != set(wish.archs),
            found.image != wish.image,
            found.python != wish.python,
        )
        versions = [r.version for r in matrix.releases if r.framework == wish.release.framework]
        far = abs(versions.index(found.release.version) - versions.index(wish.release.version))
        return (
            sum(changed),
            *changed,
            far,
            abs(_minor(found.python) - _minor(wish.python)),
            found.python.endswith("t"),
        )

    return min(_all(matrix, wish), key=distance, default=None)


def _all(matrix: Matrix, wish: Combination) -> Iterator[Combination]:
    for release in matrix.releases:
        if release.framework != wish.release.framework:
            continue
        for image in (matrix.images[name] for name in release.images):
            archs = _replaced(image, wish.archs)
            for python in release.pythons:
                if python in image.pythons:
                    yield Combination(release=release, image=image, python=python, archs=archs)


def _replaced(image: Image, archs: Sequence[str]) -> tuple[str, ...]:
    """``archs`` as the image can compile them: an unknown target gives way to one whose code the card runs."""
    found = []
    for arch in archs:
        card = cards.card(arch)
        stand_ins = [arch, card.generic, card.override.arch if card.override else ""]
        found += [a for a in stand_ins if a and image.can_compile(a)][:1]
    return tuple(dict.fromkeys(found))


def _minor(python: str) -> int:
    return int(python.rstrip("t").partition(".")[2])
