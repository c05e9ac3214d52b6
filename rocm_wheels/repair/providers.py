"""Which libraries are ROCm, what they open by name, where their data lies, and who provides them to a thin wheel.

Sources: the bundle lists of pytorch `.ci/manywheel/repair_wheel.py` and pytorch/builder `manywheel/build_rocm.sh`, the
preload list of ROCm/TheRock `build_prod_wheels.py`, and the packages of Debian's ROCm.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

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
}

# Where AMD's SDK wheels put libraries, below site-packages (ROCm/TheRock, pytorch `.ci/manywheel`).
SDK_LAYOUTS = ("_rocm_sdk_core/lib", "_rocm_sdk_core/lib/rocm_sysdeps/lib", "_rocm_sdk_libraries/lib")

_VERSION = re.compile(r"\.so(\.\d+)*$")
_GFX = re.compile(r"gfx[0-9a-f]{3,4}(?![0-9a-f])")


def is_rocm(name: str) -> bool:
    """Whether a library of this file name belongs to ROCm."""
    return _ROCM.fullmatch(name) is not None


def stem(name: str) -> str:
    """``librocblas`` for ``librocblas.so.0``."""
    return _VERSION.sub("", name)


def serves(file: str, archs: tuple[str, ...]) -> bool:
    """Whether a data file is for one of ``archs``, or for none in particular. No archs: all files are wanted."""
    named = set(_GFX.findall(PurePosixPath(file).as_posix()))
    return not named or not archs or bool(named & {arch.partition(":")[0] for arch in archs})
