"""What inspect finds in a wheel: plain facts and answers, ready to be printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from rocm_wheels.elf.offload import Bundle
from rocm_wheels.gpu.cards import Kind

Provider = Literal["wheel", "unreachable", "system", "python", "declared", "distribution", "rpath", "rocm", "unknown"]
# "outside": there is no code for GPUs inside, the ROCm that the wheel finds decides; "empty": no compiled code at all.
Verdict = Literal[Kind, "outside", "empty"]


@dataclass(frozen=True)
class Bytes:
    """Sizes in bytes: unpacked on disk, and packed inside the wheel (measured while inflating)."""

    size: int = 0
    packed: int = 0

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.size + other.size, self.packed + other.packed)


@dataclass(frozen=True)
class Code:
    """Device code for one target: number of code objects; bytes inflated, stored in the library, packed in a wheel."""

    arch: str
    objects: int
    inflated: int
    stored: int
    packed: int


@dataclass(frozen=True, kw_only=True)
class Library:
    """One ELF file. ``bundles`` is its device code, ``embedded`` bundles that it carries as constants and loads itself.

    ``split`` says that its device code was moved into .kpack archives, ``broken`` why the device code cannot be read.
    """

    name: str
    total: Bytes
    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    verneed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compilers: tuple[str, ...] = ()
    bundles: tuple[Bundle, ...] = ()
    embedded: tuple[Bundle, ...] = ()
    code: tuple[Code, ...] = ()
    split: bool = False
    broken: str = ""

    @property
    def search_path(self) -> str:
        """The entries that the loader honours: RUNPATH, or RPATH when there is none."""
        return (self.rpath or "") if self.runpath is None else self.runpath

    @property
    def archs(self) -> frozenset[str]:
        """Targets that *every* bundle of the library has code for."""
        return frozenset.intersection(*(b.archs for b in self.bundles)) if self.bundles else frozenset()

    @property
    def host(self) -> Bytes:
        """The file without its device code."""
        return self.total + Bytes(-sum(c.stored for c in self.code), -sum(c.packed for c in self.code))


@dataclass(frozen=True)
class Data:
    """Data files of one ROCm component for one target ("" for those that serve all)."""

    component: str
    arch: str
    files: int
    total: Bytes
    empty: tuple[str, ...] = ()


@dataclass(frozen=True)
class Need:
    """A library that files of the wheel need, and who gives it: ``where`` is a member, a package or a path."""

    library: str
    provider: Provider
    where: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """A sign of the ROCm release that a wheel was built for: what says so, where, and the release it means."""

    rocm: str
    what: str
    where: str


@dataclass(frozen=True)
class Answer:
    """Whether the wheel runs on one GPU. ``lacking`` are the files without code or data for it, each with the reason.

    ``variants`` are the answers of libraries of which one is loaded, by the ROCm release that they are for.
    """

    gfx: str
    verdict: Verdict
    variable: str
    why: str
    lacking: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    variants: tuple[tuple[str, Answer], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The answer for ``--json``."""
        return {
            "gfx": self.gfx,
            "verdict": self.verdict,
            "variable": self.variable,
            "why": self.why,
            "lacking": [{"file": member, "why": why} for member, why in self.lacking],
            "notes": list(self.notes),
            "variants": {label: answer.as_dict() for label, answer in self.variants},
        }


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Everything that inspect knows of one wheel."""

    wheel: Path
    distribution: str
    version: str
    tags: tuple[str, ...]
    requires_python: str
    requires: tuple[str, ...]
    external: tuple[str, ...]
    total: Bytes
    parts: Mapping[str, Bytes]
    libraries: tuple[Library, ...]
    data: tuple[Data, ...]
    needs: tuple[Need, ...]
    rocm: tuple[Evidence, ...]
    hip_symbols: str
    platform: str
    platform_floor: tuple[str, ...]
    unreadable: tuple[tuple[str, str], ...] = ()

    @property
    def device_libraries(self) -> tuple[Library, ...]:
        """Libraries with device code of their own."""
        return tuple(lib for lib in self.libraries if lib.bundles or lib.embedded or lib.split or lib.broken)

    @property
    def archs(self) -> tuple[str, ...]:
        """Every target that some code object or data file is for."""
        found = {c.arch for lib in self.libraries for c in lib.code} | {d.arch for d in self.data if d.arch}
        return tuple(sorted(found, key=_by_generation))

    @property
    def rocm_releases(self) -> tuple[str, ...]:
        """The releases that the evidence names, without those that another one names more exactly."""
        named = {e.rocm for e in self.rocm}
        exact = (r for r in named if not any(o.startswith(f"{r}.") for o in named))
        return tuple(sorted(exact, key=Version))

    def by_gpu(self) -> dict[str, tuple[Code, Bytes]]:
        """Per target: the device code of all libraries taken together, and its data files."""
        found = {}
        for arch in self.archs:
            mine = [c for lib in self.libraries for c in lib.code if c.arch == arch]
            summed = (sum(getattr(c, key) for c in mine) for key in ("objects", "inflated", "stored", "packed"))
            data = sum((d.total for d in self.data if d.arch == arch), Bytes())
            found[arch] = (Code(arch, *summed), data)
        return found

    def as_dict(self) -> dict[str, Any]:
        """The inspection for ``--json``."""
        return {
            "wheel": str(self.wheel),
            "distribution": self.distribution,
            "version": self.version,
            "tags": list(self.tags),
            "requires_python": self.requires_python,
            "requires": list(self.requires),
            "requires_external": list(self.external),
            **vars(self.total),
            "parts": {name: vars(total) for name, total in self.parts.items()},
            "gpus": {
                arch: {**_code(code), "data_size": data.size, "data_packed": data.packed}
                for arch, (code, data) in self.by_gpu().items()
            },
            "libraries": [_library(lib) for lib in self.libraries],
            "data": [{**vars(d), "total": vars(d.total)} for d in self.data],
            "needs": [vars(n) for n in self.needs],
            "rocm": {"releases": list(self.rocm_releases), "evidence": [vars(e) for e in self.rocm]},
            "hip_symbols": self.hip_symbols,
            "platform": self.platform,
            "platform_floor": list(self.platform_floor),
            "unreadable": [{"file": name, "why": why} for name, why in self.unreadable],
        }


def _by_generation(arch: str) -> tuple[int, str]:
    digits = arch.partition(":")[0].removeprefix("gfx").partition("-")[0]
    return (len(digits), arch)


def _code(code: Code) -> dict[str, int]:
    return {"objects": code.objects, "inflated": code.inflated, "stored": code.stored, "packed": code.packed}


def _library(lib: Library) -> dict[str, Any]:
    return {
        "name": lib.name,
        **vars(lib.total),
        "needed": list(lib.needed),
        "soname": lib.soname,
        "rpath": lib.rpath,
        "runpath": lib.runpath,
        "symbol_versions": {name: list(versions) for name, versions in sorted(lib.verneed.items())},
        "compilers": list(lib.compilers),
        "archs": sorted(lib.archs),
        "code": {c.arch: _code(c) for c in lib.code},
        "bundles": [_bundle(b) for b in (*lib.bundles, *lib.embedded)],
        "split": lib.split,
        "broken": lib.broken,
    }


def _bundle(bundle: Bundle) -> dict[str, Any]:
    return {
        "section": bundle.section,
        "offset": bundle.offset,
        "size": bundle.size,
        "inflated": bundle.inflated_size,
        "compression": bundle.compression,
        "objects": [{"target": e.target, "size": e.size, "flagged": e.flagged} for e in bundle.entries if e.arch],
    }
