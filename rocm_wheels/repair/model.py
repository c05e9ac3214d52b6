"""A repair, decided: what each library needs, where that comes from, and what changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rocm_wheels.elf.anatomy import Anatomy
from rocm_wheels.elf.patch import Edit
from rocm_wheels.repair.contracts import Contract
from rocm_wheels.wheel.tags import Measured

Mode = Literal["thin", "fat", "retag", "rpath"]
MODES: tuple[Mode, ...] = ("thin", "fat", "retag", "rpath")
Provider = Literal["wheel", "graft", "outside", "system"]


@dataclass(frozen=True, kw_only=True)
class RepairOptions:
    """What is wanted. ``archs`` limits grafted data files; ``lib_dirs`` are searched for libraries to graft.

    ``absolute`` are directories that end every thin RPATH, such as ``/opt/rocm/lib``; ``plat`` is a platform tag that
    must be met; ``exclude`` are names or patterns of further libraries that stay outside; each must match a need.
    ``requires`` are requirements, such as ``rocm-sdk-core==7.1.*``, that shall bring ROCm to a thin wheel.
    """

    mode: Mode = "thin"
    archs: tuple[str, ...] = ()
    lib_dirs: tuple[Path, ...] = ()
    absolute: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    plat: str = ""
    keep_stack: bool = False


@dataclass(frozen=True)
class Need:
    """A library that a file needs and who gives it; ``where`` is a member, a path or a contract."""

    name: str
    provider: Provider
    where: str


@dataclass(frozen=True)
class ElfPlan:
    """One ELF file of the result: its needs, its edit (None: untouched), why, and its search path afterwards."""

    member: str
    needs: tuple[Need, ...]
    edit: Edit | None
    reasons: tuple[str, ...]
    rpath: str = ""


@dataclass(frozen=True)
class Graft:
    """A file taken from the machine into the wheel, with the package that it came from."""

    member: str
    source: Path
    package: str = ""
    version: str = ""
    licence: Path | None = None
    purl: str = ""


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """Everything that ``apply_plan`` will do, and nothing else.

    ``contracts`` are the providers of what stays outside, with the libraries that each brings; ``recorded`` says that
    the result keeps a record of the repair (:mod:`rocm_wheels.repair.manifest`).
    """

    wheel: Path
    mode: Mode
    package: str
    elves: tuple[ElfPlan, ...]
    grafts: tuple[Graft, ...]
    data: tuple[Graft, ...]
    measured: Measured
    tags: tuple[str, ...]
    name: str
    requires_external: tuple[str, ...]
    retags: bool
    requires_dist: tuple[str, ...] = ()
    contracts: tuple[tuple[Contract, tuple[str, ...]], ...] = ()
    recorded: bool = False
    notes: tuple[str, ...] = ()
    anatomies: Mapping[str, Anatomy] = field(default_factory=dict, repr=False, compare=False)  # what edits start from

    @property
    def is_noop(self) -> bool:
        """Whether the wheel is already what the plan wants."""
        changes = (self.grafts, self.data, self.requires_external, self.requires_dist, self.retags)
        renamed = self.name != self.wheel.name
        return not renamed and not any(changes) and not any(e.edit for e in self.elves)

    def providers(self) -> list[dict[str, Any]]:
        """Who brings what stays outside, as plain data."""
        return [{**asdict(contract), "libraries": list(libraries)} for contract, libraries in self.contracts]

    def as_dict(self) -> dict[str, Any]:
        """The plan for ``--json``."""
        return {
            "wheel": str(self.wheel),
            "mode": self.mode,
            "result": self.name,
            "platform": self.measured.policy.tag,
            "forbidden_below_by": [str(b) for b in self.measured.blockers],
            "files": [asdict(e) for e in self.elves],
            "grafts": [asdict(g) for g in self.grafts],
            "data_files": len(self.data),
            "requires_external": list(self.requires_external),
            "requires_dist": list(self.requires_dist),
            "providers": self.providers(),
            "notes": list(self.notes),
        }
