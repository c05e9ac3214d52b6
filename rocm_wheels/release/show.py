"""The release data as rows for a table and as plain values for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from rocm_wheels.errors import Impossible
from rocm_wheels.gpu.cards import Card, find
from rocm_wheels.release.facts import COLUMNS, Cell
from rocm_wheels.release.gpus import Offer, offers
from rocm_wheels.release.matrix import Matrix
from rocm_wheels.release.model import Release

SUMMARY = ("release", "ROCm", "ROCm (AMD's fork)", "Python", "backend", "glibc", "images")
OTHERS = ("framework", "wheel", "versions", "needs ROCm", "source")
OFFERS = ("release", "ROCm", "from", "answer", "code", "set", "why")


def select(matrix: Matrix, *, rocm: str = "", python: str = "") -> tuple[Release, ...]:
    """The releases for a ROCm version (official, AMD's fork or an image's) and a Python.

    Raises :class:`Impossible` naming what there is when none fits.
    """
    found = tuple(
        r
        for r in matrix.releases
        if (not python or python in r.pythons) and (not rocm or any(_same(rocm, v) for v in _rocms(matrix, r)))
    )
    if found:
        return found
    wish = " and ".join(f"{what} {value}" for what, value in (("ROCm", rocm), ("Python", python)) if value)
    rocms = {version for r in matrix.releases if not python or python in r.pythons for version in _rocms(matrix, r)}
    pythons = {p for r in matrix.releases for p in r.pythons}
    there = f"ROCm {', '.join(sorted(rocms, key=_key))}" if rocms else f"Python {', '.join(sorted(pythons, key=_key))}"
    raise Impossible(
        f"no release is for {wish}", remedy=f"there is {there}{' for that Python' if python and rocms else ''}"
    )


def _same(wanted: str, version: str) -> bool:
    """``6.2`` means every 6.2.x, and 6.2.4 is served by what is given as 6.2."""
    return f"{version}.".startswith(f"{wanted}.") or f"{wanted}.".startswith(f"{version}.")


def _key(version: str) -> tuple[list[int], bool]:
    return [int(part) for part in version.rstrip("t").split(".")], version.endswith("t")


def _rocms(matrix: Matrix, release: Release) -> tuple[str, ...]:
    facts = release.facts
    official = (*(facts.rocm.value or ()), *(facts.amd_rocm.value or ())) if facts else ()
    return (*official, *(matrix.images[name].rocm for name in release.images))


def summary(matrix: Matrix, releases: Iterable[Release]) -> list[tuple[str, ...]]:
    """A row per release under :data:`SUMMARY`."""
    rows: list[tuple[str, ...]] = []
    for r in releases:
        images = ", ".join(f"{name} (ROCm {matrix.images[name].rocm})" for name in r.images)
        cells: list[Cell[Any]] = [r.facts.rocm, r.facts.amd_rocm, r.facts.backend, r.facts.glibc] if r.facts else []
        rocm, amd, backend, glibc = [shown(cell) for cell in cells] or [""] * 4
        rows.append((r.name, rocm, amd, " ".join(r.pythons), backend, glibc, images or "none"))
    return rows


def others(matrix: Matrix) -> list[tuple[str, ...]]:
    """A row per wheel of another framework under :data:`OTHERS`."""
    return [
        (w.framework, w.distribution, w.versions or "all", w.rocm or "unknown", w.source or w.unknown)
        for w in matrix.wheels
    ]


def shown(cell: Cell[Any]) -> str:
    """The value for people: ``unknown``, ``none``, lists with commas."""
    if not cell.known:
        return "unknown"
    if isinstance(cell.value, tuple):
        return ", ".join(cell.value)
    return str(cell.value).lower() if isinstance(cell.value, bool) else str(cell.value) or "none"


def details(release: Release) -> list[tuple[str, str, str]]:
    """Every cell of a release: column, value, and where the value comes from or why there is none."""
    rows = []
    for name, cell in release.facts.cells().items() if release.facts else ():
        rows.append((COLUMNS[name], shown(cell), "; ".join(filter(None, (cell.source, cell.note)))))
    rows += [("trap", trap.text, trap.source) for trap in (release.facts.traps if release.facts else ())]
    for build in release.builds:
        source = build.source
        what = source.url or source.path or f"{source.package} {source.version}".strip() or "archives"
        rows.append(
            (f"build in {', '.join(build.images)}", f"{source.kind}: {what}", f"{source.origin}; {build.origin}")
        )
    return rows


def for_gpu(
    matrix: Matrix, name: str, releases: Sequence[Release], *, rocm: str = "", python: str = ""
) -> dict[Card, tuple[Offer, ...]]:
    """The offers for each card that ``name`` may mean; raises :class:`UnknownArch` for no known one."""

    def wanted(offer: Offer) -> bool:
        image = matrix.images.get(offer.place)
        return (not rocm or any(_same(rocm, version) for version in offer.rocm.split(", "))) and (
            not python or image is None or python in image.pythons
        )

    return {card: tuple(filter(wanted, offers(matrix, card, releases))) for card in find(name)}


def offer_rows(found: Iterable[Offer]) -> list[tuple[str, ...]]:
    """A row per offer under :data:`OFFERS`."""
    return [(o.release, o.rocm, o.place, o.kind, o.arch, o.variable, o.why) for o in found]


def as_dict(release: Release) -> dict[str, Any]:
    """A release with its cells as plain values."""
    found = dataclasses.asdict(release)
    found["name"] = release.name
    found["images"] = list(release.images)
    return found
