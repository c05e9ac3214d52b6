"""What a split saves: bytes per wheel, per installation and on the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.layers.model import LayersPlan


@dataclass(frozen=True)
class LayersReport:
    """The wheels written with their sizes, and fat against layered where fat wheels were given.

    ``fat`` and ``layered`` are bytes on the index; ``fat_install`` and ``layered_install`` what one environment
    downloads that gets one wheel of each framework. ``fat`` figures are None when a wheel did not carry ROCm.
    """

    wheels: tuple[tuple[str, int], ...]
    layered: int
    layered_install: int
    fat: int | None = None
    fat_install: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The report for ``--json``."""
        return {**vars(self), "wheels": dict(self.wheels)}

    def sentences(self) -> tuple[str, ...]:
        """The sums for people."""
        if self.fat is None or self.fat_install is None:
            return (f"index {mib(self.layered)}, one installation {mib(self.layered_install)}",)
        return (
            f"index: {mib(self.fat)} fat, {mib(self.layered)} in layers",
            f"one installation: {mib(self.fat_install)} fat, {mib(self.layered_install)} in layers",
        )


def measure_report(plan: LayersPlan, written: Sequence[Path], given: Sequence[Path]) -> LayersReport:
    """Sizes of the files ``written`` for ``plan``, and of the fat wheels ``given`` where all of them were fat."""
    sizes = {path.name: path.stat().st_size for path in written}
    base = sum(sizes[wheel.name] for wheel in plan.base)
    thin = {w.requirement: sizes[w.name] for w in plan.frameworks}
    install = base + sum(thin.values())
    if not plan.base or {w.source for w in plan.frameworks} != set(given):
        return LayersReport(tuple(sizes.items()), sum(sizes.values()), install)
    fat = {w.requirement: w.source.stat().st_size for w in plan.frameworks}
    total = sum(path.stat().st_size for path in given)
    return LayersReport(tuple(sizes.items()), sum(sizes.values()), install, total, sum(fat.values()))


def mib(size: int) -> str:
    """Bytes as MiB with one digit."""
    return f"{size / (1 << 20):.1f} MiB"
