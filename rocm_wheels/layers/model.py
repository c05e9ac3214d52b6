"""A split, decided: which file of a fat wheel goes into which base wheel, and what stays in the framework's.

Names. AMD's own base wheels are ``rocm-sdk-core``, ``rocm-sdk-libraries-…``, ``rocm-sdk-device-…`` and ``rocm``, with
``_rocm_sdk_core`` and so on in site-packages. Ours share neither a distribution name nor a directory with them, so no
pin, RPATH or uninstall can hit the wrong one. Versions carry a local label (``5.7+b3f9…``): public indexes take none,
so nothing there can ever satisfy one of our pins.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.elf.edit import Edit

PREFIX = "rocm-layers"
CORE, LIBRARIES = "core", "libraries"
_DEVICE = "device-"


def device(arch: str) -> str:
    """The layer with the data of one GPU target."""
    return f"{_DEVICE}{arch}"


def distribution(layer: str) -> str:
    """``rocm-layers-core`` for the layer ``core``."""
    return f"{PREFIX}-{layer}"


def folder(layer: str) -> str:
    """Where a layer's files lie below site-packages.

    Device data lies in the directory of the libraries that read it: rocBLAS and its sisters look beside themselves.
    """
    name = LIBRARIES if layer.startswith(_DEVICE) else layer
    return f"_{PREFIX.replace('-', '_')}_{name}"


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """What is wanted. ``base`` are base wheels to build upon, none: they are made.

    ``archs`` limits data that is taken from this machine for wheels which do not carry ROCm yet, ``lib_dirs`` are
    searched for it; ``rocm`` is the ROCm release when no wheel tells it; ``device_extras`` leaves device data to an
    extra per GPU target instead of requiring all of it.
    """

    base: tuple[Path, ...] = ()
    archs: tuple[str, ...] = ()
    lib_dirs: tuple[Path, ...] = ()
    rocm: str = ""
    device_extras: bool = False


@dataclass(frozen=True)
class Piece:
    """A file that moves from ``member`` of a fat wheel to ``place`` (below site-packages) in a base wheel."""

    wheel: Path
    member: str
    layer: str
    place: str
    digest: str
    size: int
    edit: Edit | None = None


@dataclass(frozen=True, kw_only=True)
class WheelPlan:
    """One wheel of the result: its name, tags and dependencies, and every file with its place in it."""

    name: str
    layer: str
    requirement: str
    tags: tuple[str, ...]
    requires: tuple[str, ...]
    extras: tuple[tuple[str, str], ...] = ()
    source: Path
    pieces: tuple[Piece, ...]

    @property
    def edits(self) -> dict[str, Edit]:
        """Edits by place."""
        return {piece.place: piece.edit for piece in self.pieces if piece.edit}


@dataclass(frozen=True)
class LayersPlan:
    """Everything that will be written, base wheels first."""

    base: tuple[WheelPlan, ...]
    frameworks: tuple[WheelPlan, ...]

    @property
    def wheels(self) -> tuple[WheelPlan, ...]:
        """All wheels, in dependency order."""
        return (*self.base, *self.frameworks)

    def as_dict(self) -> dict[str, Any]:
        """The plan for ``--json``."""
        return {"wheels": [asdict(wheel) for wheel in self.wheels]}
