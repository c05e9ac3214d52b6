"""What the source stage takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.release import Release

Phase = Literal["base", "hipified"]
PHASES: tuple[Phase, ...] = ("base", "hipified")

STATE = Path(".rocm-wheels") / "source.json"


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One file of a series; ``name`` is its path below the release's patch directory."""

    path: Path
    phase: Phase
    sha256: str

    @property
    def name(self) -> str:
        """``base/0001-title.patch``."""
        return f"{self.phase}/{self.path.name}"


@dataclass(frozen=True, kw_only=True)
class CheckoutPlan:
    """A pinned source and the patches that belong on it; ``fingerprint`` is the hash of both."""

    release: Release
    patches: tuple[Patch, ...]
    fingerprint: str

    def series(self, phase: Phase) -> tuple[Patch, ...]:
        """The patches of one phase, in order."""
        return tuple(p for p in self.patches if p.phase == phase)


@dataclass(frozen=True, kw_only=True)
class PatchStatus:
    """What a patch would do to a tree: ``state`` and why it would not apply, or by how much its hunks moved."""

    patch: Patch
    state: Literal["applies", "already applied", "fails", "target missing"]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A source tree as laid: ``identity`` names the exact source (commit, .dsc or content hash)."""

    path: Path
    identity: str
    patches: tuple[PatchStatus, ...]
