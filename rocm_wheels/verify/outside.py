"""Who brings a library that a wheel needs and does not hold.

Either METADATA says so (Requires-External, or Requires-Dist of a distribution that has it), or the file's own RPATH
leads into a known place outside, which is weaker: no resolver knows of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rocm_wheels.repair.providers import is_rocm, is_torch
from rocm_wheels.verify.elves import ElfFacts
from rocm_wheels.verify.subject import Subject

# The driver's own libraries: no package may bring them.
_DRIVERS = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})

_NVIDIA = r"lib(cu\w+|cudnn\w*|nv\w+|nccl)\.so(\.\d+)*"
_INTEL = r"lib(svml|irng|imf|intlc|sycl|ze_loader|OpenCL|mkl_\w+|ur_loader)\.so(\.\d+)*"
_ROCM_EXTRA = r"librocm_sysdeps_\w+\.so(\.\d+)*"


@dataclass(frozen=True)
class _Provider:
    """Distributions (normalized names) that bring libraries, and the directories where they lie."""

    distributions: str
    libraries: str
    folders: str


# Sources: Requires-Dist and RPATHs of published torch, jax-rocm and bitsandbytes wheels; ROCm/TheRock's SDK wheels;
# the layers of this project. torch loads what it needs before a dependant is loaded, so it stands for all of it.
_PROVIDERS = (
    _Provider(r"torch", rf"{_NVIDIA}|{_INTEL}", r"torch/lib"),
    _Provider(r"nvidia-[\w-]+|cuda-toolkit", _NVIDIA, r"nvidia/[\w.-]+/lib"),
    _Provider(r"(intel|mkl|onemkl|dpcpp)[\w-]*", _INTEL, r"lib"),
    _Provider(r"rocm|rocm-sdk-[\w-]+|amd-[\w-]+", _ROCM_EXTRA, r"_rocm_sdk_\w+/lib(/rocm_sysdeps/lib)?|rocm/lib"),
    _Provider(r"rocm-layers-[\w-]+", r"lib[\w+-]+\.so(\.\d+)*", r"_rocm_layers_\w+/lib"),
    _Provider(r"jax-rocm[\w-]*-(pjrt|plugin)", _ROCM_EXTRA, r"jax_plugins/\w+"),
)
_BRINGS_ROCM = (r"torch", r"rocm|rocm-sdk-[\w-]+|amd-[\w-]+", r"rocm-layers-[\w-]+", r"jax-rocm[\w-]*-pjrt")
_SYSTEM_ROCM = re.compile(r"/opt/rocm[\w.-]*(/.*)?")
_ROCM_FOLDER = re.compile(r"(.*/)?(_rocm_sdk_\w+/lib(/rocm_sysdeps/lib)?|_rocm_layers_\w+/lib|rocm/lib)/?")


def declared(subject: Subject, library: str) -> bool:
    """Whether METADATA says who brings ``library``; drivers need no saying."""
    if library in _DRIVERS or library in subject.external:
        return True
    if is_torch(library):
        return subject.requires("torch")
    if is_rocm(library) and any(subject.requires(name) for name in _BRINGS_ROCM):
        return True
    return any(re.fullmatch(p.libraries, library) and subject.requires(p.distributions) for p in _PROVIDERS)


def place_outside(elf: ElfFacts, library: str) -> str:
    """The entry of the file's own path that leads to where ``library`` usually lies outside; "" when none does."""
    for entry in elf.search_path:
        folder = _from_origin(elf, entry)
        if folder is None:
            if _SYSTEM_ROCM.fullmatch(entry) and _of_rocm(library):
                return entry
            continue
        if _of_rocm(library) and _ROCM_FOLDER.fullmatch(folder):
            return entry
        for provider in _PROVIDERS:
            if re.fullmatch(provider.libraries, library) and re.fullmatch(f"(.*/)?({provider.folders})", folder):
                return entry
    return ""


def inside_folders(elf: ElfFacts) -> Iterator[str]:
    """Directories, as members name them, that the file's own path leads to; those above the wheel start with ``..``."""
    for entry in elf.search_path:
        folder = _from_origin(elf, entry)
        if folder is not None:
            yield folder


def _of_rocm(library: str) -> bool:
    return is_rocm(library) or re.fullmatch(_ROCM_EXTRA, library) is not None


def _from_origin(elf: ElfFacts, entry: str) -> str | None:
    origin = entry.replace("${ORIGIN}", "$ORIGIN")
    if not (origin == "$ORIGIN" or origin.startswith("$ORIGIN/")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(elf.name), origin[8:].strip("/") or "."))
