"""Matrices of float32 on the CPU and, in a ROCm build, on an AMD GPU."""

from minitorch import cuda, version
from minitorch._tensor import Tensor, rand, tensor

__version__ = version.__version__
__all__ = ["Tensor", "__version__", "cuda", "rand", "tensor", "version"]
