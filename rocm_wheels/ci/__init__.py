"""Pipelines for other people's CI systems, rendered from the release matrix."""

from rocm_wheels.ci.cells import Cell, plan_cells
from rocm_wheels.ci.render import SYSTEMS, render, write

__all__ = ["SYSTEMS", "Cell", "plan_cells", "render", "write"]
