"""Who brings a library that a wheel needs and does not hold.

Either METADATA says so (Requires-External, or Requires-Dist of a distribution that has it), or the file's own RPATH
leads into a known place outside, which is weaker: no resolver knows of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from rocm_wheels.repair.contracts import DRIVERS, PROVIDERS, ROCM_EXTRA
from rocm_wheels.repair.providers import is_rocm, is_torch
from rocm_wheels.verify.elves import ElfFacts
from rocm_wheels.verify.subject import Subject

_SYSTEM_ROCM = re.compile(r"/opt/rocm[\w.-]*(/.*)?")
_ROCM_FOLDER = re.compile(r"(.*/)?(_rocm_sdk_\w+/lib(/rocm_sysdeps/lib)?|_rocm_layers_\w+/lib|rocm/lib)/?")


def declared(subject: Subject, library: str) -> bool:
    """Whether METADATA says who brings ``library``; drivers need no saying."""
    if library in DRIVERS or library in subject.external:
        return True
    if is_torch(library):
        return subject.requires("torch")
    if is_rocm(library) and any(p.rocm and subject.requires(p.distributions) for p in PROVIDERS):
        return True
    return any(re.fullmatch(p.libraries, library) and subject.requires(p.distributions) for p in PROVIDERS)


def place_outside(elf: ElfFacts, library: str) -> str:
    """The entry of the file's own path that leads to where ``library`` usually lies outside; "" when none does."""
    for entry in elf.search_path:
        folder = _from_origin(elf, entry)
        if folder is None:
            if _SYSTEM_ROCM.fullmatch(entry) and _of_rocm(library):
                return entry
            continue
        if _of_rocm(library) and _ROCM_FOLDER.fullmatch(folder):
            return entry
        for provider in PROVIDERS:
            if re.fullmatch(provider.libraries, library) and re.fullmatch(f"(.*/)?({provider.folders})", folder):
                return entry
    return ""


def inside_folders(elf: ElfFacts) -> Iterator[str]:
    """Directories, as members name them, that the file's own path leads to; those above the wheel start with ``..``."""
    for entry in elf.search_path:
        folder = _from_origin(elf, entry)
        if folder is not None:
            yield folder


def _of_rocm(library: str) -> bool:
    return is_rocm(library) or re.fullmatch(ROCM_EXTRA, library) is not None


def _from_origin(elf: ElfFacts, entry: str) -> str | None:
    origin = entry.replace("${ORIGIN}", "$ORIGIN")
    if not (origin == "$ORIGIN" or origin.startswith("$ORIGIN/")):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(elf.name), origin[8:].strip("/") or "."))
