"""Who brings a library that stays outside a wheel, and in which versions: the contract that the wheel relies on.

Sources: Requires-Dist and RPATHs of published torch, jax-rocm and bitsandbytes wheels; ROCm/TheRock's SDK wheels; the
layers of this project. Symbol versions of HIP (``hip_5.1``) name the release that brought the symbol (ROCm/clr
``hipamd/src/hip_hcc.map.in``); its SONAME follows the major release of ROCm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rocm_wheels.errors import UsageError
from rocm_wheels.repair.providers import is_rocm, is_torch, rocm_major

if TYPE_CHECKING:
    from packaging.requirements import Requirement

# The drivers' own libraries: no package may bring them.
DRIVERS = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})

_NVIDIA = r"lib(cu\w+|cudnn\w*|nv\w+|nccl)\.so(\.\d+)*"
_INTEL = r"lib(svml|irng|imf|intlc|sycl|ze_loader|OpenCL|mkl_\w+|ur_loader)\.so(\.\d+)*"
ROCM_EXTRA = r"librocm_sysdeps_\w+\.so(\.\d+)*"


@dataclass(frozen=True)
class Provider:
    """Distributions (a pattern of normalized names), the libraries they bring, and the directories where these lie."""

    distributions: str
    libraries: str
    folders: str
    rocm: bool = False  # whether it brings ROCm as well


# torch loads what it needs before a dependant is loaded, so it stands for all of it.
PROVIDERS = (
    Provider(r"torch", rf"{_NVIDIA}|{_INTEL}", r"torch/lib", rocm=True),
    Provider(r"nvidia-[\w-]+|cuda-toolkit", _NVIDIA, r"nvidia/[\w.-]+/lib"),
    Provider(r"(intel|mkl|onemkl|dpcpp)[\w-]*", _INTEL, r"lib"),
    Provider(r"rocm|rocm-sdk-[\w-]+|amd-[\w-]+", ROCM_EXTRA, r"_rocm_sdk_\w+/lib(/rocm_sysdeps/lib)?|rocm/lib", True),
    Provider(r"rocm-layers-[\w-]+", r"lib[\w+-]+\.so(\.\d+)*", r"_rocm_layers_\w+/lib", rocm=True),
    Provider(r"jax-rocm[\w-]*-pjrt", ROCM_EXTRA, r"jax_plugins/\w+", rocm=True),
    Provider(r"jax-rocm[\w-]*-plugin", ROCM_EXTRA, r"jax_plugins/\w+"),
)
SYSTEM = "system ROCm"
BY_NAME = "Requires-External"  # METADATA names each library
# What NVIDIA's distributions are called where the library's name does not say it.
_NVIDIA_NAMES = {"cudart": "runtime", "nvtoolsext": "nvtx"}


@dataclass(frozen=True, order=True)
class Contract:
    """One provider of libraries from outside.

    ``versions`` is a specifier, "" for any; ``declared`` is how METADATA says it, "" for drivers, which need no saying.
    """

    provider: str
    versions: str
    declared: str

    def __str__(self) -> str:
        return f"{self.provider} {self.versions}".rstrip()


class Contracts:
    """Finds the contract of a library from what METADATA requires and what HIP's names and symbols say."""

    def __init__(self, requires_dist: Iterable[str], rocm: str) -> None:
        self._lines = tuple(requires_dist)
        self._rocm = rocm

    @cached_property
    def _requirements(self) -> list[Requirement]:
        return _requirements(self._lines)

    def of(self, library: str) -> Contract | None:
        """Who brings ``library``; None when nobody known does. Distributions come before the system."""
        found = [r for r in self._requirements if any(_brings(p, r.name, library) for p in PROVIDERS)]
        if found:
            best = min(found, key=lambda r: (not _is_called(library, r.name), r.name))
            return Contract(best.name, str(best.specifier), f"Requires-Dist: {best}")
        if library in DRIVERS:
            return Contract("NVIDIA's driver", "", "")
        if is_rocm(library) or re.fullmatch(ROCM_EXTRA, library):
            return Contract(SYSTEM, self._rocm, BY_NAME)
        return None


def rocm_range(needed: Iterable[str], verneed: Iterable[Mapping[str, Sequence[str]]]) -> str:
    """The releases of ROCm that these needs fit, such as ``>=6.1,<7``; "" when HIP is not needed or twice.

    The lower end is the newest release whose symbols are used, not what the package calls itself.
    """
    major = rocm_major(needed)
    if major is None:
        return ""
    symbols = {
        (int(found[1]), int(found[2]))
        for versions in verneed
        for library, names in versions.items()
        if library.startswith("libamdhip64.so")
        for name in names
        if (found := re.fullmatch(r"hip_(\d+)\.(\d+)", name))
    }
    newest = max((v for v in symbols if v[0] == major), default=(major, 0))
    low = f"{major}.{newest[1]}" if newest[1] else str(major)
    return f">={low},<{major + 1}"


def chosen(requirements: Iterable[str], major: int | None) -> tuple[str, ...]:
    """Requirements that shall bring ROCm, as METADATA writes them.

    Raises :class:`UsageError` for one that is none, that no known provider has, or that is for another major release
    than ``major``, which HIP's SONAME fixes.
    """
    found = []
    for text in requirements:
        parsed = _requirements((text,))
        if not parsed:
            raise UsageError(f"--requires {text!r} is no requirement", remedy="write it like 'rocm-sdk-core==7.1.*'")
        (requirement,) = parsed
        if not any(p.rocm and re.fullmatch(p.distributions, requirement.name) for p in PROVIDERS):
            raise UsageError(
                f"--requires {text}: {requirement.name} is not known to bring ROCm",
                remedy="known are torch, rocm, rocm-sdk-*, rocm-layers-* and jax-rocm*-pjrt",
            )
        _check_major(requirement, major)
        found.append(str(requirement))
    return tuple(found)


def _check_major(requirement: Requirement, major: int | None) -> None:
    if major is None or not re.fullmatch(r"rocm|rocm-sdk-[\w-]+|rocm-layers-[\w-]+", requirement.name):
        return
    for each in requirement.specifier:
        if each.operator in ("==", "~=", "===") and each.version.partition(".")[0] != str(major):
            raise UsageError(
                f"the wheel is built for ROCm {major} (libamdhip64.so.{major}), {requirement} brings another",
                remedy=f"require release {major}, or build for the other one",
            )


def _requirements(lines: Iterable[str]) -> list[Requirement]:
    """Those that always hold; what an extra asks for may be missing. Names are normalized."""
    from packaging.requirements import InvalidRequirement, Requirement  # its grammar is much to compile
    from packaging.utils import canonicalize_name

    found = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if "extra" not in str(requirement.marker or ""):
            requirement.name = canonicalize_name(requirement.name)
            found.append(requirement)
    return found


def _brings(provider: Provider, name: str, library: str) -> bool:
    if not re.fullmatch(provider.distributions, name):
        return False
    if is_torch(library):
        return name == "torch"
    return re.fullmatch(provider.libraries, library) is not None or (provider.rocm and is_rocm(library))


def _is_called(library: str, distribution: str) -> bool:
    """Whether the distribution's name tells that it is about ``library``."""
    word = re.split(r"[._]", library.removeprefix("lib").lower())[0].rstrip("0123456789")
    return _NVIDIA_NAMES.get(word, word) in distribution
