"""What slim decides, before it writes anything."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.slim.library import Library


@dataclass(frozen=True)
class SlimPlan:
    """A slim wheel to be made: file ``name`` with ``version`` and ``build`` tag, for ``archs``.

    ``libraries`` are those with device code, ``data`` the data files of other GPUs, which go, with their sizes.
    """

    wheel: Path
    name: str
    version: str
    build: str
    archs: tuple[str, ...]
    libraries: tuple[Library, ...]
    data: tuple[tuple[str, int], ...]

    @property
    def removed_size(self) -> int:
        """Bytes of device code and data that go, as installed."""
        return sum(each.removed_size for each in self.libraries) + sum(size for _, size in self.data)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json`` and the manifest in the wheel; the same plan gives the same text."""
        return {
            "wheel": self.wheel.name,
            "name": self.name,
            "version": self.version,
            "archs": list(self.archs),
            "libraries": [dataclasses.asdict(each) for each in self.libraries],
            "data_removed": [name for name, _ in self.data],
            "removed_bytes": self.removed_size,
        }
