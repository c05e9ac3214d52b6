"""What a pipeline builds: one cell per Python, image (which is a ROCm release) and set of GPU targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rocm_wheels.build.plan import plan_build
from rocm_wheels.config import Settings
from rocm_wheels.errors import UsageError
from rocm_wheels.release import load_matrix


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One build: its values are the variables of a job. ``fingerprint`` is that of the plan, and the cache's key."""

    release: str
    image: str
    tag: str
    rocm: str
    python: str
    arch: str
    fingerprint: str


def plan_cells(
    settings: Settings, *, images: Sequence[str] = (), pythons: Sequence[str] = (), archs: Sequence[str] = ()
) -> tuple[Cell, ...]:
    """Every combination of ``images``, ``pythons`` and sets of ``archs``; by default all that the release has.

    Raises the errors of the release data for one that is named and impossible, :class:`UsageError` for none at all.
    """
    matrix = load_matrix()
    release = matrix.release(settings.release)
    cells = []
    for name in images or release.images:
        image = matrix.image(name)
        for python in pythons or [p for p in release.pythons if p in image.pythons]:
            for arch in archs or ("",):
                plan = plan_build(matrix, replace(settings, image=name, arch=arch), python)
                cell = Cell(
                    release=release.name,
                    image=name,
                    tag=plan.image_tag.rpartition(":")[2],
                    rocm=image.rocm,
                    python=python,
                    arch=";".join(plan.archs),
                    fingerprint=plan.fingerprint[:16],
                )
                cells.append(cell)
    if not cells:
        raise UsageError(f"{release.name} builds in no image of this project", remedy="`invoke releases` lists images")
    return tuple(cells)
