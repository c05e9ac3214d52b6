"""What a GPU can run: of the official wheels, and of what this project's images can build; with the reason.

A wheel's own targets decide about the official ones. Of a build the image's compiler decides, and its rocBLAS: without
kernel files for the card the first matrix product ends the process (ROCm/rocBLAS#1339).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet

from rocm_wheels.gpu.cards import Card, Kind, serve
from rocm_wheels.release.matrix import Matrix
from rocm_wheels.release.model import Image, Release

OFFICIAL = "official wheel"


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One release for one GPU: ``place`` is :data:`OFFICIAL` or an image to build in.

    ``kind`` says by which code the card is served, ``arch`` is that code's target (of a build: the ``--arch`` to give),
    ``variable`` what the user sets before running it, ``why`` the reason with its source.
    """

    release: str
    gpu: str
    rocm: str
    place: str
    kind: Kind
    arch: str
    variable: str
    why: str


def offers(matrix: Matrix, card: Card, releases: Sequence[Release]) -> tuple[Offer, ...]:
    """Every answer that the release data can give for ``card``, newest release first, builds before official wheels.

    ROCm versions of one release with the same answer share one.
    """
    found: list[Offer] = []
    for offer in (offer for release in reversed(releases) for offer in _of_release(matrix, card, release)):
        if found and replace(found[-1], rocm="") == replace(offer, rocm=""):
            offer = replace(offer, rocm=f"{found.pop().rocm}, {offer.rocm}")
        found.append(offer)
    return tuple(found)


def _of_release(matrix: Matrix, card: Card, release: Release) -> Iterator[Offer]:
    for name in release.images:
        yield _build(release, matrix.images[name], card)
    if release.facts:
        for rocm in release.facts.rocm.value or ():
            yield _official(matrix, release, rocm, card)


def _official(matrix: Matrix, release: Release, rocm: str, card: Card) -> Offer:
    assert release.facts
    found = serve(card.gfx, release.facts.archs_for(rocm))
    why = [found.why]
    if not found.runs and (change := _change(matrix, release, rocm, card)):
        why.insert(0, change)
    why += _traps(release, rocm, card)
    return Offer(
        release=release.name,
        gpu=card.gfx,
        rocm=rocm,
        place=OFFICIAL,
        kind=found.kind,
        arch=found.arch,
        variable=found.variable,
        why="; ".join(why),
    )


def _traps(release: Release, rocm: str, card: Card) -> list[str]:
    """What is reported about this very target."""
    traps = release.facts.traps if release.facts else ()
    fits = [t for t in traps if card.gfx in t.gpus and SpecifierSet(t.rocm).contains(rocm)]
    return [f"but {t.text} ({t.source})" for t in fits]


def _change(matrix: Matrix, release: Release, rocm: str, card: Card) -> str:
    """Whether the target was dropped before this wheel or came after it."""
    pairs = [
        (other.version, version, card.gfx in other.facts.archs_for(version))
        for other in matrix.releases
        if other.framework == release.framework and other.facts
        for version in other.facts.rocm.value or ()
    ]
    here = pairs.index((release.version, rocm, False))
    if before := [p for p in pairs[:here] if p[2]]:
        return f"dropped: {before[-1][0]} for ROCm {before[-1][1]} is the last with code for it"
    if after := [p for p in pairs[here:] if p[2]]:
        return f"not yet: {after[0][0]} for ROCm {after[0][1]} is the first with code for it"
    return "never among the targets of an official wheel"


def _build(release: Release, image: Image, card: Card) -> Offer:
    """The answer for a build in ``image``: code that it can compile and that its rocBLAS has kernels for.

    Where nobody read rocBLAS's targets, code of the family's known card is the safe choice.
    """
    safe = (card.override.arch,) if card.override else (card.gfx,)
    found = serve(card.gfx, [arch for arch in image.rocblas or safe if image.can_compile(arch)])
    why = f"rocBLAS there has kernels for {found.arch}: {found.why}" if image.rocblas else found.why
    if not image.rocblas:
        why = f"{why}; which targets rocBLAS there has kernels for was not read"
    elif not found.runs:
        why = f"rocBLAS there has no kernels that run on it, so the first matrix product would end the process; {why}"
    return Offer(
        release=release.name,
        gpu=card.gfx,
        rocm=image.rocm,
        place=image.name,
        kind=found.kind,
        arch=found.arch,
        variable=found.variable,
        why=why,
    )
