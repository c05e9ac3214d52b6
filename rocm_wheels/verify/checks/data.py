"""Data files that libraries of ROCm read at run time: there, not empty, for every GPU target, and in one piece.

Without data for its GPU rocBLAS aborts the process; hipBLASLt and hipSPARSELt need their directory, and serve only some
of the targets that PyTorch has code for; MIOpen and aotriton are slow without. Layouts: flat
(``library/TensileLibrary_gfx1030.co``), per target (``library/gfx1030/…``) and Debian's with a version
(``rocblas/2.47.0/library``).
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from rocm_wheels.gpu.datafiles import targets_of
from rocm_wheels.repair.providers import DATA, stem
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject

_MUST = {  # the check for no data at all, and for none for a target
    "librocblas": ("data-missing", "data-missing"),
    "libhipblaslt": ("data-missing", "tuning-missing"),
    "libhipsparselt": ("data-missing", "tuning-missing"),
}
_SHOULD = {"libMIOpen": DATA["libMIOpen"], "libaotriton_v2": ("aotriton.images",)}
_CHILD = re.compile(rb"TensileLibrary_[A-Za-z0-9_]+")


def data(subject: Subject) -> Iterator[Finding]:
    """What the libraries of the wheel read, in it or in the wheels of the set that it pins."""
    sizes = {n: r.size or 0 for s in (*subject.companions, subject) for n, r in s.content.items()}
    for member in subject.elves:
        library = stem(posixpath.basename(member))
        if library in _MUST:
            yield from _library(subject, member, *_MUST[library], _files(member, DATA[library], sizes))
        elif library in _SHOULD:
            files = _files(member, _SHOULD[library], sizes)
            yield from _library(subject, member, "tuning-missing", "tuning-missing", files)


def _files(member: str, folders: tuple[str, ...], sizes: Mapping[str, int]) -> dict[str, int]:
    """Files and their sizes in the directories where the library looks, by their path inside."""
    found = {}
    for folder in folders:
        pattern = posixpath.normpath(posixpath.join(posixpath.dirname(member), folder))
        for name, size in sizes.items():
            if fnmatch.fnmatchcase(name, f"{pattern}/*"):
                found[name] = size
    return found


def wanted_targets(subject: Subject) -> tuple[str, ...]:
    """The processors asked for; without any, those that all device code of the package itself serves."""
    if subject.options.archs:
        return tuple(dict.fromkeys(arch.partition(":")[0] for arch in subject.options.archs))
    own = [e.everywhere for m, e in subject.elves.items() if e.bundles and stem(posixpath.basename(m)) not in DATA]
    return tuple(sorted({arch.partition(":")[0] for arch in frozenset.intersection(*own)})) if own else ()


def _library(subject: Subject, member: str, none: str, gap: str, files: dict[str, int]) -> Iterator[Finding]:
    if not files:
        yield finding(none, member, f"none of its data is in the wheel: {' or '.join(_folders(member))}")
        return
    by_target = defaultdict(set)
    for name in files:
        for target in targets_of(posixpath.basename(name)) or targets_of(name):
            by_target[target].add(name)
    for target in wanted_targets(subject):
        if not by_target[target]:
            yield finding(gap, member, f"no data for {target}", symbol=target)
    for name, size in files.items():
        if not size:
            yield finding(none, name, "the file is empty")
    if none == "data-missing":
        yield from _incomplete(subject, member, files, by_target)


def _folders(member: str) -> tuple[str, ...]:
    library = stem(posixpath.basename(member))
    folders = DATA.get(library) or _SHOULD[library]
    return tuple(posixpath.normpath(posixpath.join(posixpath.dirname(member), folder)) for folder in folders)


def _incomplete(
    subject: Subject, member: str, files: dict[str, int], by_target: Mapping[str, set[str]]
) -> Iterator[Finding]:
    """Files that go together: kernels that other targets have, code beside its catalogue, parts that a master names."""
    names = {posixpath.basename(name) for name in files}
    masters = {t: {n for n in files_ if _is_master(n)} for t, files_ in by_target.items()}
    kernels = {t: any("Kernels.so-" in n for n in files_) for t, files_ in by_target.items()}
    code = {t: any(n.endswith((".co", ".hsaco")) and "Kernels.so-" not in n for n in f) for t, f in by_target.items()}
    for target in sorted(t for t, found in by_target.items() if found):
        if not kernels[target] and any(kernels.values()):
            yield finding("data-missing", member, f"no Kernels.so-000-{target}.hsaco, other targets have theirs")
        if not code[target] and any(code.values()):
            yield finding("data-missing", member, f"no code objects for {target}, other targets have theirs")
        if not masters[target] and any(masters.values()):
            yield finding("data-missing", member, f"no catalogue TensileLibrary_lazy_{target}.dat, others have theirs")
    tensile = {n for n in names if n.startswith("TensileLibrary")}
    if tensile and not any(masters.values()) and not any(n.endswith((".dat", ".yaml")) for n in tensile):
        yield finding("data-missing", member, "no catalogue (TensileLibrary.dat or TensileLibrary_lazy_gfx….dat)")
    for name in sorted(names):
        yield from _pair(member, name, names)
    for master in sorted({m for found in masters.values() for m in found}):
        yield from _children(subject, member, master, names)


def _is_master(name: str) -> bool:
    return posixpath.basename(name).startswith("TensileLibrary_lazy_")


def _pair(member: str, name: str, names: set[str]) -> Iterator[Finding]:
    """A part of a lazy library is two files: its catalogue and, but for fallbacks, the code object beside it."""
    base, dot, kind = name.rpartition(".")
    if not dot or not base.startswith("TensileLibrary_Type_"):
        return
    if kind == "co" and f"{base}.dat" not in names:
        yield finding("data-missing", member, f"{name} has no {base}.dat beside it")
    if kind == "dat" and "_fallback" not in base and not {f"{base}.co", f"{base}.hsaco"} & names:
        yield finding("data-missing", member, f"{name} has no {base}.co beside it")
    if kind == "hsaco" and "_fallback" in base and f"{base.rpartition('_gfx')[0]}.dat" not in names:
        yield finding("data-missing", member, f"{name} has no {base.rpartition('_gfx')[0]}.dat")


def _children(subject: Subject, member: str, master: str, names: set[str]) -> Iterator[Finding]:
    holder = next(s for s in (subject, *subject.companions) if master in s.archive)
    children = {c.decode("ascii") for c in _CHILD.findall(holder.archive.read(master))}
    for child in sorted(children):
        if not any(f"{child}{suffix}" in names for suffix in (".dat", ".yaml", ".co", ".hsaco")):
            yield finding("data-missing", member, f"{posixpath.basename(master)} names {child}, which is not there")
