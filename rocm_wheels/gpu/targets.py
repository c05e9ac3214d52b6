"""GPU targets: LLVM names such as ``gfx90a:xnack-``, and lists of them.

Names come from AMD's rocm-bootstrap; what a list of targets means for a build is decided here.
"""

from __future__ import annotations

import re

from rocm_bootstrap import targets as _targets

from rocm_wheels.errors import UnknownArch, nearest

# Compiled by every LLVM that ROCm ships, but outside rocm-bootstrap's packaging hierarchy (LLVM AMDGPU usage guide).
_UNPACKAGED = ("gfx803", "gfx940", "gfx941")

KNOWN_TARGETS: tuple[str, ...] = (
    *_UNPACKAGED,
    *(bundle.key for bundle in _targets.all_bundles(_targets.PackagingLevel.TARGET)),
)
GENERIC_TARGETS: tuple[str, ...] = tuple(b.llvm_generic for b in _targets.all_bundles() if b.llvm_generic)

_FEATURES = re.compile(r"(:(xnack|sramecc)[+-])*")


def check_arch(arch: str) -> str:
    """``arch`` itself if it is a processor known to LLVM, with optional ``:xnack±`` and ``:sramecc±``.

    Raises :class:`UnknownArch` naming the nearest known ones.
    """
    processor, colon, features = arch.partition(":")
    if processor not in KNOWN_TARGETS + GENERIC_TARGETS:
        known = nearest(processor, KNOWN_TARGETS + GENERIC_TARGETS)
        raise UnknownArch(f"{processor!r} is not an AMD GPU target", remedy=known)
    if not _FEATURES.fullmatch(colon + features):
        raise UnknownArch(f"{arch!r}: target features are :xnack+, :xnack-, :sramecc+ and :sramecc-")
    return arch


def parse_archs(text: str) -> tuple[str, ...]:
    """A ``;``- or ``,``-separated target list as PYTORCH_ROCM_ARCH writes it: checked, in order, once each.

    Raises :class:`UnknownArch` for an unknown target and for an empty list.
    """
    archs = tuple(dict.fromkeys(check_arch(a.strip()) for a in re.split(r"[;,]", text) if a.strip()))
    if not archs:
        raise UnknownArch(
            "the list of GPU targets is empty; on a machine without a GPU nothing can be guessed",
            remedy="name them: --arch 'gfx1030;gfx1100'",
        )
    return archs
