"""Reads a fat wheel: which of its files are ROCm's, and to which layer each belongs. Writes nothing."""

from __future__ import annotations

import fnmatch
import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.gpu.datafiles import targets_of
from rocm_wheels.layers.model import CORE, LIBRARIES, device, folder
from rocm_wheels.repair.facts import ElfFacts, wheel_facts
from rocm_wheels.repair.providers import DATA, is_rocm, stem
from rocm_wheels.wheel import WheelArchive

# The runtime that everything needs, small beside the libraries: HIP, comgr, HSA, SMI, tracing. The same cut as between
# AMD's rocm-sdk-core and rocm-sdk-libraries (ROCm/TheRock RELEASES.md), without its compiler.
_CORE = frozenset(
    (
        "libamd_comgr",
        "libamd_comgr_loader",
        "libamd_smi",
        "libamdhip64",
        "libamdocl64",
        "libhiprtc",
        "libhiprtc-builtins",
        "libhsa-amd-aqlprofile64",
        "libhsa-runtime64",
        "libhsakmt",
        "librocm-core",
        "librocm-dbgapi",
        "librocm_smi64",
        "librocprofiler-register",
        "librocprofiler-sdk",
        "librocprofiler-sdk-roctx",
        "librocprofiler64",
        "libroctracer64",
        "libroctx64",
    )
)


@dataclass(frozen=True)
class Split:
    """A wheel, read. ``home`` is the directory of its ROCm libraries ("" without any), ``layers`` the layer by member.

    ``digests`` and ``sizes`` are what RECORD says of every member.
    """

    wheel: Path
    elves: Mapping[str, ElfFacts]
    home: str
    layers: Mapping[str, str]
    digests: Mapping[str, str]
    sizes: Mapping[str, int]

    def place(self, member: str) -> str:
        """Where a member lies below site-packages once the wheel is split."""
        layer = self.layers.get(member)
        if layer is None:
            return member
        inside = posixpath.normpath(posixpath.join("lib", posixpath.relpath(member, self.home)))
        if inside.startswith(".."):  # a library that was not below HIP's directory
            inside = f"lib/{posixpath.basename(member)}"
        return f"{folder(layer)}/{inside}"

    @property
    def needs(self) -> frozenset[str]:
        """ROCm libraries that are needed and not in the wheel."""
        own = {posixpath.basename(member) for member in self.elves}
        return frozenset(n for facts in self.elves.values() for n in facts.needed if is_rocm(n)) - own


def read_split(wheel: Path, memory_mib: int = 512) -> Split:
    """Read ``wheel``; raises :class:`BrokenArchive`, :class:`BrokenWheel`, :class:`BrokenElf` and :class:`NotElf`."""
    with WheelArchive.open(wheel) as archive:
        elves = wheel_facts(archive, memory_mib)
        rows = {row.path: row for row in archive.record}
        files = [m for m in archive.members if not m.is_directory]
        return Split(
            wheel,
            elves,
            _home(elves),
            dict(sorted(_layers(elves, [m.name for m in files]).items())),
            {m.name: rows[m.name].digest if m.name in rows else "" for m in files},
            {m.name: m.size for m in files},
        )


def _home(elves: Collection[str]) -> str:
    folders = Counter(posixpath.dirname(m) for m in elves if is_rocm(posixpath.basename(m)))
    hip = [posixpath.dirname(m) for m in elves if stem(posixpath.basename(m)) == "libamdhip64"]
    return min(hip) if hip else max(sorted(folders), key=folders.__getitem__, default="")


def _layers(elves: Mapping[str, ElfFacts], members: Iterable[str]) -> dict[str, str]:
    by_name = {posixpath.basename(member): member for member in sorted(elves, reverse=True)}
    rocm = {member for member in elves if is_rocm(posixpath.basename(member))}
    runtime = {member for member in rocm if stem(posixpath.basename(member)) in _CORE}
    found = dict.fromkeys(_reached(rocm, elves, by_name), LIBRARIES)
    found.update(dict.fromkeys(_reached(runtime, elves, by_name), CORE))
    patterns = [(pattern, found[member]) for member in sorted(rocm) for pattern in _data(member)]
    for member in members:
        for pattern, layer in patterns:
            if member not in found and fnmatch.fnmatchcase(member, pattern):
                found[member] = device(arch) if (arch := _arch(member)) else layer
    return found


def _reached(start: Iterable[str], elves: Mapping[str, ElfFacts], by_name: Mapping[str, str]) -> set[str]:
    """``start`` and whatever of the wheel it needs, and what that needs."""
    reached: set[str] = set()
    queue = list(start)
    while queue:
        member = queue.pop()
        if member not in reached:
            reached.add(member)
            queue += [by_name[name] for name in elves[member].needed if name in by_name]
    return reached


def _data(library: str) -> Iterator[str]:
    """Patterns of the data files that a library looks for, by its place."""
    for pattern in DATA.get(stem(posixpath.basename(library)), ()):
        yield posixpath.normpath(posixpath.join(posixpath.dirname(library), pattern)) + "/*"


def _arch(member: str) -> str | None:
    """The one GPU target that a data file is for; None for several or none in particular."""
    targets = targets_of(member)
    return next(iter(targets)) if len(targets) == 1 else None
