"""The one type: a dense, row-major matrix of float32."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minitorch import _C

if TYPE_CHECKING:
    import numpy

_DEFAULTS = json.loads((Path(__file__).parent / "share" / "defaults.json").read_text("utf-8"))


class Tensor:
    """A matrix of ``shape`` (rows, columns) over the bytes of ``data``."""

    def __init__(self, data: bytes, shape: tuple[int, int]) -> None:
        if len(data) != 4 * shape[0] * shape[1]:
            raise ValueError(f"{len(data)} bytes do not make a matrix of {shape[0]} x {shape[1]}")
        self.data = data
        self.shape = shape

    def __add__(self, other: Tensor) -> Tensor:
        if self.shape != other.shape:
            raise ValueError(f"shapes differ: {self.shape} and {other.shape}")
        return Tensor(_C.add(self.data, other.data), self.shape)

    def __matmul__(self, other: Tensor) -> Tensor:
        (m, k), (k2, n) = self.shape, other.shape
        if k != k2:
            raise ValueError(f"inner sizes differ: {self.shape} and {other.shape}")
        return Tensor(_C.matmul(self.data, other.data, m, k, n), (m, n))

    def tolist(self) -> list[list[float]]:
        """The rows."""
        numbers, columns = array("f", self.data).tolist(), self.shape[1]
        return [numbers[row * columns : (row + 1) * columns] for row in range(self.shape[0])]

    def numpy(self) -> numpy.ndarray:
        """A NumPy array with a copy of the numbers; raises RuntimeError in a build without NumPy."""
        if not hasattr(_C, "to_numpy"):
            raise RuntimeError("minitorch was compiled without NumPy")
        return _C.to_numpy(self.data, *self.shape)


def tensor(rows: Sequence[Sequence[float]]) -> Tensor:
    """A matrix from rows of equal length: lists, or a NumPy array of two dimensions."""
    columns = len(rows[0]) if len(rows) else 0
    return Tensor(array("f", [number for row in rows for number in row]).tobytes(), (len(rows), columns))


def rand(rows: int, columns: int, seed: int = _DEFAULTS["seed"]) -> Tensor:
    """Uniform numbers in [0, 1), the same for the same seed."""
    return Tensor(_C.rand(seed, rows * columns), (rows, columns))
