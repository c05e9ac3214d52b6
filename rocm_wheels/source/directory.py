"""A source that lies in this project; its identity is the hash of its content."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.config import PROJECT_ROOT
from rocm_wheels.errors import SourceUnreachable
from rocm_wheels.release import Source

_LEFT_OUT = shutil.ignore_patterns("build", "dist", "__pycache__", "*.egg-info", "*.so", "*.pyc", ".git", "hip")


def content_hash(source: Source) -> str:
    """sha256 over paths, modes and content of all files; raises :class:`SourceUnreachable`."""
    root = PROJECT_ROOT / source.path
    if not root.is_dir():
        raise SourceUnreachable(f"the source directory {root} does not exist", remedy="use a whole checkout")
    whole = hashlib.sha256()
    for path in _files(root):
        executable = bool(path.stat().st_mode & 0o100)
        whole.update(f"{path.relative_to(root)}\0{executable}\0".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        ignored = _LEFT_OUT(folder, [*names, *files])
        names[:] = sorted(n for n in names if n not in ignored)
        yield from (Path(folder) / f for f in sorted(files) if f not in ignored)


def lay(source: Source, into: Path) -> str:
    """Copy the directory to ``into``; returns its identity."""
    shutil.copytree(PROJECT_ROOT / source.path, into, ignore=_LEFT_OUT)
    return f"content {content_hash(source)}"
