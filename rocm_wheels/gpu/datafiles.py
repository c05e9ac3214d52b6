"""Which GPU target a data file of a ROCm library is for, by its path.

Tensile libraries of rocBLAS, hipBLASLt and hipSPARSELt, MIOpen's databases, aotriton's images: their names carry the
target, in the file's name (``TensileLibrary_lazy_gfx90a.dat``) or in a directory (``library/gfx90a/…``,
``amd-gfx11xx``). Files without one serve every GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rocm_wheels.gpu.targets import GENERIC_TARGETS, KNOWN_TARGETS

# Longest name first: MIOpen writes the number of compute units right behind the target (gfx90a68, gfx94280).
_TARGET = re.compile("|".join(sorted((*KNOWN_TARGETS, *GENERIC_TARGETS), key=lambda name: (-len(name), name))))
# aotriton names a whole family: amd-gfx11xx (its `v2/` tree and build scripts).
_FAMILY = re.compile(r"gfx(\d+)(x{1,2})(?![0-9a-z])")


def targets_of(path: str) -> frozenset[str]:
    """The targets named in ``path``, which may be relative or absolute; empty for a file that serves all."""
    families = [re.compile(f"gfx{digits}[0-9a-f]{{{len(xs)}}}") for digits, xs in _FAMILY.findall(path)]
    members = (t for t in KNOWN_TARGETS if any(f.fullmatch(t) for f in families))
    return frozenset((*_TARGET.findall(path), *members))


def serves(path: str, archs: Iterable[str]) -> bool:
    """Whether the data file at ``path`` is for one of ``archs`` (features are ignored) or for every GPU."""
    named = targets_of(path)
    return not named or bool(named & {arch.partition(":")[0] for arch in archs})
