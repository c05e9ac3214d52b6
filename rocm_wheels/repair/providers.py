"""Which libraries are ROCm, what they open by name, where their data lies, and who provides them to a thin wheel.

Sources: the bundle lists of pytorch `.ci/manywheel/repair_wheel.py` and pytorch/builder `manywheel/build_rocm.sh`, the
preload list of ROCm/TheRock `build_prod_wheels.py`, and the packages of Debian's ROCm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Opened by name by torch, Triton, roctracer or each other: never renamed.
_ROCM = re.compile(
    r"lib(MIOpen|amdhip64|amd_comgr|amd_comgr_loader|amd_smi|amdocl64|hip(blas|blaslt|dnn|fft|file|rand|rtc|rtc-builtins"
    r"|solver|sparse|sparselt|tensor)|hsa-runtime64|hsa-amd-aqlprofile64|hsakmt|magma|rccl|rccl-net|migraphx|"
    r"roc(alution|blas|fft|rand|roller|solver|sparse|m-core|m-dbgapi|m_smi64|m-openblas|tracer64|tx64|shmem)|"
    r"rocfft-device-\d|rocprofiler(64|-sdk|-sdk-roctx|-register)|roctracer64|roctx64|rocm_sysdeps_\w+)"
    r"\.so(\.\d+)*"
)

# Data that a library looks for below its own directory, by the library's name without version. Debian adds a version
# directory of its own (rocblas/2.47.0/library).
DATA: dict[str, tuple[str, ...]] = {
    "librocblas": ("rocblas/library", "rocblas/*/library"),
    "libhipblaslt": ("hipblaslt/library", "hipblaslt/*/library"),
    "libhipsparselt": ("hipsparselt/library",),
    "libMIOpen": ("../share/miopen/db",),
    "librccl": ("../share/rccl/msccl-algorithms",),
    "librocfft": ("rocfft",),
}

# Libraries that abort without their data: a missing directory ends a fat repair. The others get a note.
DATA_MUST = frozenset({"librocblas", "libhipblaslt", "libhipsparselt"})

# Where distributions keep data that the library would look for elsewhere, with its place beside the library in a wheel.
DATA_ELSEWHERE: dict[str, tuple[tuple[str, str], ...]] = {
    "libMIOpen": (("../../share/miopen/db", "../share/miopen/db"),),
    "libdrm_amdgpu": (("../../share/libdrm", "../share/libdrm"), ("../share/libdrm", "../share/libdrm")),
}

# Where AMD's SDK wheels put libraries, below site-packages (ROCm/TheRock, pytorch `.ci/manywheel`).
SDK_LAYOUTS = ("_rocm_sdk_core/lib", "_rocm_sdk_core/lib/rocm_sysdeps/lib", "_rocm_sdk_libraries/lib")

# Libraries of a torch wheel, for wheels that declare torch as a dependency: they live in torch/lib.
_TORCH = re.compile(r"lib(c10|c10_hip|c10_cuda|torch|torch_cpu|torch_hip|torch_cuda|torch_python|shm|caffe2_\w+)\.so")
TORCH_LAYOUT = "torch/lib"

# Opened by a name that is put together at run time, so that no literal shows it (ROCm/clr, hiprtc).
OPENS: dict[str, tuple[str, ...]] = {
    "libhiprtc": ("libhiprtc-builtins.so.*",),
    "libamdhip64": ("libhiprtc-builtins.so.*",),
}

_VERSION = re.compile(r"\.so(\.\d+)*$")


def is_rocm(name: str) -> bool:
    """Whether a library of this file name belongs to ROCm."""
    return _ROCM.fullmatch(name) is not None


def is_torch(name: str) -> bool:
    """Whether a library of this file name comes with the torch wheel."""
    return _TORCH.fullmatch(name) is not None


def rocm_major(names: Iterable[str]) -> int | None:
    """The ROCm major release that these library names belong to: HIP's SONAME follows it (5, 6, 7)."""
    majors = {int(m[1]) for name in names if (m := re.fullmatch(r"libamdhip64\.so\.(\d+)(\.\d+)*", name))}
    return majors.pop() if len(majors) == 1 else None


def stem(name: str) -> str:
    """``librocblas`` for ``librocblas.so.0``."""
    return _VERSION.sub("", name)
