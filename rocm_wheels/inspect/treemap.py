"""Rectangles with areas in the ratio of values, near square (Bruls, Huizing, van Wijk: Squarified Treemaps, 2000)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rect:
    """A rectangle: left, top, width, height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        """Width times height."""
        return self.width * self.height

    def without_top(self, height: float) -> Rect:
        """What is left below a strip of ``height``, or below half when there is not that much."""
        cut = min(height, self.height / 2)
        return Rect(self.x, self.y + cut, self.width, self.height - cut)


def squarify(values: Sequence[float], space: Rect) -> list[Rect]:
    """One rectangle for each of ``values`` (positive, largest first); together they are ``space``."""
    found: list[Rect] = []
    scale = space.area / (sum(values) or 1)
    areas = [value * scale for value in values]
    while areas:
        side = min(space.width, space.height)
        count = 1
        while count < len(areas) and _worst(areas[: count + 1], side) <= _worst(areas[:count], side):
            count += 1
        row, areas = areas[:count], areas[count:]
        placed, space = _place(row, space, last=not areas)
        found += placed
    return found


def _worst(row: Sequence[float], side: float) -> float:
    """The worst ratio of sides when ``row`` is laid along ``side``."""
    total = sum(row)
    if not total or not side:
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row) or 1e-9))


def _place(row: Sequence[float], space: Rect, *, last: bool) -> tuple[list[Rect], Rect]:
    """``row`` along the shorter side of ``space``, and the space that is left; the last row takes all of it."""
    total = sum(row) or 1
    upright = space.width >= space.height
    length = space.height if upright else space.width
    depth = (space.width if upright else space.height) if last else total / length if length else 0
    found = []
    position = 0.0
    for area in row:
        extent = length * area / total
        if upright:
            found.append(Rect(space.x, space.y + position, depth, extent))
        else:
            found.append(Rect(space.x + position, space.y, extent, depth))
        position += extent
    if upright:
        return found, Rect(space.x + depth, space.y, space.width - depth, space.height)
    return found, Rect(space.x, space.y + depth, space.width, space.height - depth)
