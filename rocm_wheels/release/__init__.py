"""The compatibility matrix as data: which framework release builds with which image, ROCm, Python and GPU."""

from rocm_wheels.release.facts import Cell, Facts
from rocm_wheels.release.load import load_matrix
from rocm_wheels.release.matrix import Matrix
from rocm_wheels.release.model import Archive, Build, Cost, Image, Recipe, Release, Source, Submodule

__all__ = [
    "Archive",
    "Build",
    "Cell",
    "Cost",
    "Facts",
    "Image",
    "Matrix",
    "Recipe",
    "Release",
    "Source",
    "Submodule",
    "load_matrix",
]
