"""The compatibility matrix as data: which framework release builds with which image, ROCm, Python and GPU."""

from rocm_wheels.release.matrix import Matrix, load_matrix
from rocm_wheels.release.model import Archive, Image, Recipe, Release, Source

__all__ = ["Archive", "Image", "Matrix", "Recipe", "Release", "Source", "load_matrix"]
