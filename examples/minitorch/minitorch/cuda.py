"""The GPU, under the name that PyTorch gives it also in a ROCm build."""

from minitorch import _C
from minitorch._tensor import Tensor


def reason() -> str:
    """Why no GPU can be used; empty if one can."""
    if not hasattr(_C, "hip_status"):
        return "minitorch was compiled without ROCm"
    code, count, message = _C.hip_status()
    if code:
        return f"hipGetDeviceCount gives error {code}: {message}"
    return "" if count else "hipGetDeviceCount finds no device"


def is_available() -> bool:
    """Whether a GPU can be used."""
    return not reason()


def add(a: Tensor, b: Tensor) -> Tensor:
    """``a + b`` computed on the GPU."""
    _require()
    return Tensor(_C.hip_add(a.data, b.data), a.shape)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b`` computed on the GPU by rocBLAS."""
    _require()
    (m, k), (_, n) = a.shape, b.shape
    return Tensor(_C.hip_matmul(a.data, b.data, m, k, n), (m, n))


def total(a: Tensor) -> float:
    """The sum of all numbers, computed on the GPU."""
    _require()
    return float(_C.hip_sum(a.data))


def _require() -> None:
    if why := reason():
        raise RuntimeError(f"no GPU can be used: {why}")
