"""Decides a slim wheel: what stays, what goes, what it is called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import ArchMissing, NothingToSlim
from rocm_wheels.gpu.datafiles import serves, targets_of
from rocm_wheels.slim.library import plan_library
from rocm_wheels.slim.model import SlimPlan
from rocm_wheels.wheel import WheelArchive

# Directories whose files are for one GPU each. rocBLAS ends the process on a GPU without; the others are not used or
# slower there, which is no different in the wheel for many.
_DATA = re.compile(r"(^|/)(?P<kind>rocblas|hipblaslt|hipsparselt|miopen|aotriton\.images)/")
_NEEDED = "rocblas"


def plan_slim(archive: WheelArchive, elves: Mapping[str, ElfFile], archs: Sequence[str], *, build: bool) -> SlimPlan:
    """The plan for a wheel whose libraries are ``elves``; ``build`` marks it by a build tag instead of a version.

    Raises :class:`ArchMissing` when a library or the data of rocBLAS has nothing for one of ``archs``,
    :class:`NothingToSlim` when nothing would go.
    """
    libraries = tuple(p for _, elf in sorted(elves.items()) if (p := plan_library(elf, archs)))
    data = _data(archive, archs)
    if not data and not any(library.removed for library in libraries):
        raise NothingToSlim(
            f"{archive.path.name} has no GPU code for anything but {', '.join(archs)}"
            if libraries
            else f"{archive.path.name} has no GPU code",
            remedy="it is as small as it gets: use it as it is",
        )
    mark = ".".join(_mark(arch) for arch in archs)
    version = archive.version if build else _marked(str(archive.version), mark)
    tag = f"1{mark.replace('.', '')}" if build else "".join(map(str, archive.build))
    stem = re.split(r"-", archive.path.name.removesuffix(".whl"))
    name = "-".join(filter(None, (stem[0], str(version), tag, *stem[-3:]))) + ".whl"
    return SlimPlan(archive.path, name, str(version), tag, tuple(archs), libraries, data)


def _mark(arch: str) -> str:
    """A target as a segment of a local version: ``gfx90a:xnack-`` is ``gfx90a.xnackoff``."""
    return arch.replace(":", ".").replace("+", "on").replace("-", "off" if ":" in arch else "")


def _marked(version: str, mark: str) -> str:
    return f"{version}.{mark}" if "+" in version else f"{version}+{mark}"


def _data(archive: WheelArchive, archs: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Data files of other GPUs. Raises :class:`ArchMissing` where rocBLAS would have none left."""
    found: dict[tuple[str, str], list[str]] = {}
    for member in archive.members:
        if (match := _DATA.search(member.name)) and targets_of(member.name):
            found.setdefault((member.name[: match.end()], match["kind"]), []).append(member.name)
    for (folder, kind), names in sorted(found.items()):
        for arch in archs:
            if kind == _NEEDED and not any(serves(name, [arch]) for name in names):
                there = sorted(frozenset[str]().union(*map(targets_of, names)))
                raise ArchMissing(
                    f"{archive.path.name}: {folder} has no data for {arch}: rocBLAS would end the process there",
                    remedy=f"it has {', '.join(there)}; leave {arch} out, or take a wheel that serves it",
                )
    gone = sorted(name for names in found.values() for name in names if not serves(name, archs))
    return tuple((name, archive.member(name).size) for name in gone)
