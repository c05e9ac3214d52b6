"""A static index of a directory of wheels: PEP 503 and 691 pages, PEP 658/714 metadata files, a human page per project.

The wheels lie in the directory itself; everything else is written by :func:`update_index`::

    torch-2.6.0+rocm5.7-….whl            the wheel
    torch-2.6.0+rocm5.7-….whl.metadata   its METADATA, so that a resolver need not fetch gigabytes
    torch-2.6.0+rocm5.7-….whl.yanked     present: yanked, the content is the reason
    torch-2.6.0+rocm5.7-….manifest.json  where it came from; ….whl.dsse.json is the team's signature over that
    simple/index.html, simple/torch/index.html, simple/torch/index.json
    index.html, projects/torch.html      for people

Pages are replaced by renaming after the files that they name are in place, so a reader never sees a link to nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256 as new_sha256
from pathlib import Path
from typing import Any

from filelock import FileLock

from rocm_wheels.console import Console
from rocm_wheels.errors import UsageError, nearest
from rocm_wheels.publish import pages
from rocm_wheels.publish.attest import attestation_path
from rocm_wheels.publish.dist import Dist, open_dist, sha256_of
from rocm_wheels.publish.gpus import wheel_archs
from rocm_wheels.publish.manifest import manifest_path
from rocm_wheels.publish.pages import IndexedWheel

SIMPLE = "simple"
_STATE = ".rocm-wheels-index.json"
_LOCK = ".rocm-wheels-index.lock"
_STATE_VERSION = 2


@dataclass(frozen=True)
class IndexReport:
    """What an update did: wheels read, wheels gone, projects whose pages were written, wheels on the index."""

    read: tuple[str, ...]
    removed: tuple[str, ...]
    projects: tuple[str, ...]
    total: int


def update_index(directory: Path, *, console: Console) -> IndexReport:
    """Bring all pages up to date with the wheels that lie in ``directory``; only new or changed wheels are read.

    Raises :class:`UsageError` when the directory is missing or a file in it that ends in ``.whl`` is no wheel.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", remedy=f"mkdir -p {directory}")
    with index_lock(directory):
        before = _load_state(directory)
        after = _scan(directory, before, console)
        changed = sorted(
            {w.project for name, w in before.items() if after.get(name) != w}
            | {w.project for name, w in after.items() if before.get(name) != w}
        )
        _write_pages(directory, after, changed)
        removed = tuple(sorted(before.keys() - after.keys()))
        for name in removed:
            (directory / f"{name}.metadata").unlink(missing_ok=True)
        if changed or not (directory / _STATE).exists():
            write_file(directory / _STATE, _dump_state(after))
    read = tuple(sorted(n for n, w in after.items() if n not in before or before[n].stamp != w.stamp))
    return IndexReport(read, removed, tuple(changed), len(after))


def is_index(directory: Path) -> bool:
    """Whether pages were ever written here."""
    return (directory / _STATE).exists()


def update_channels(root: Path, *, console: Console) -> dict[str, IndexReport]:
    """Bring every index below ``root`` up to date and write a front page that lists them; reports by channel.

    A channel is a directory below ``root`` that holds wheels or held some, such as ``rocm5.7`` or ``rocm6.4/gfx110x``.
    Each is an index of its own, so that no resolver mixes their sets. Raises :class:`UsageError` when there is none.
    """
    found = sorted({path.parent for pattern in ("*.whl", _STATE) for path in root.glob(f"*/**/{pattern}")})
    channels = {path.relative_to(root).as_posix(): path for path in found}
    if not channels:
        raise UsageError(
            f"{root} has no directory with wheels", remedy=f"invoke publish dist/fat --to dir:{root}/rocm5.7"
        )
    reports = {name: update_index(path, console=console) for name, path in channels.items()}
    write_file(root / "index.html", pages.human_channels({n: indexed_files(p) for n, p in channels.items()}))
    return reports


def yank(directory: Path, filename: str, reason: str, *, console: Console) -> IndexReport:
    """Mark a wheel as yanked: only those who pin exactly this version still get it (PEP 592).

    Raises :class:`UsageError` when the index has no such file.
    """
    if not (directory / filename).is_file():
        known = [w.filename for w in indexed_files(directory)]
        raise UsageError(f"{directory} has no {filename}", remedy=nearest(filename, known))
    write_file(directory / f"{filename}.yanked", reason + "\n")
    return update_index(directory, console=console)


def indexed_files(directory: Path) -> tuple[IndexedWheel, ...]:
    """The wheels that the pages name now, by file name."""
    return tuple(wheel for _, wheel in sorted(_load_state(directory).items()))


@contextmanager
def index_lock(directory: Path) -> Iterator[None]:
    """Keeps other publishers off the directory; reentrant, and gone when its process dies."""
    directory.mkdir(parents=True, exist_ok=True)
    with FileLock(directory / _LOCK, is_singleton=True):
        yield


def _scan(directory: Path, before: dict[str, IndexedWheel], console: Console) -> dict[str, IndexedWheel]:
    with os.scandir(directory) as entries:
        by_name = {entry.name: entry for entry in entries if not entry.name.startswith(".")}
    wheels = {name: entry.stat() for name, entry in by_name.items() if name.endswith(".whl")}
    after: dict[str, IndexedWheel] = {}
    fresh = [n for n, s in wheels.items() if n not in before or before[n].stamp != _stamp(s)]
    with console.progress(f"read {len(fresh)} wheels", sum(wheels[n].st_size for n in fresh) or 1) as advance:
        for name in sorted(fresh):
            dist = open_dist(directory / name)
            write_file(directory / f"{name}.metadata", dist.metadata)
            after[name] = describe(dist, sha256_of(dist.path, advance), _stamp(wheels[name]))
    for name in wheels.keys() - after.keys():
        after[name] = before[name]
        if f"{name}.metadata" not in by_name:
            write_file(directory / f"{name}.metadata", open_dist(directory / name).metadata)
    for name, wheel in after.items():
        reason = (directory / f"{name}.yanked").read_text("utf-8").strip() if f"{name}.yanked" in by_name else None
        evidence = tuple(n for n in (manifest_path(Path(name)).name, attestation_path(Path(name)).name) if n in by_name)
        if (reason, evidence) != (wheel.yanked, wheel.evidence):
            after[name] = replace(wheel, yanked=reason, evidence=evidence)
    return after


def describe(dist: Dist, sha256: str, stamp: tuple[int, int, int]) -> IndexedWheel:
    """What the pages say of a wheel."""
    return IndexedWheel(
        dist.filename,
        dist.name,
        str(dist.version),
        sha256,
        new_sha256(dist.metadata).hexdigest(),
        dist.requires_python,
        wheel_archs(dist.path),
        stamp,
    )


def _write_pages(directory: Path, wheels: dict[str, IndexedWheel], changed: Iterable[str]) -> None:
    by_project: dict[str, list[IndexedWheel]] = {}
    for wheel in wheels.values():
        by_project.setdefault(wheel.project, []).append(wheel)
    changed = list(changed)
    files: dict[str, str] = {}
    for project in changed:
        if project in by_project:
            files |= pages.project_files(project, by_project[project], SIMPLE)
    if changed or not (directory / SIMPLE / "index.html").exists():
        sizes = {project: [wheel.size for wheel in found] for project, found in by_project.items()}
        files |= pages.root_files(sizes, SIMPLE)
    for path, text in files.items():
        write_file(directory / path, text)
    for project in changed:
        if project not in by_project:
            _remove_project(directory, project)


def _remove_project(directory: Path, project: str) -> None:
    for path in (
        directory / SIMPLE / project / "index.html",
        directory / SIMPLE / project / "index.json",
        directory / "projects" / f"{project}.html",
    ):
        path.unlink(missing_ok=True)
    folder = directory / SIMPLE / project
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return (stat.st_size, stat.st_mtime_ns, stat.st_ino)


def _load_state(directory: Path) -> dict[str, IndexedWheel]:
    """The state of the last update; a missing, foreign or damaged one means that every wheel is read again."""
    try:
        state = json.loads((directory / _STATE).read_text("utf-8"))
        if state["version"] != _STATE_VERSION:
            return {}
        return {w["filename"]: load_wheel(w) for w in state["wheels"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def load_wheel(entry: Mapping[str, Any]) -> IndexedWheel:
    """A wheel as JSON keeps it; raises :class:`KeyError` and :class:`TypeError` for anything else."""
    return IndexedWheel(**{**entry, **{key: tuple(entry[key]) for key in ("archs", "stamp", "evidence")}})


def _dump_state(wheels: dict[str, IndexedWheel]) -> str:
    return json.dumps({"version": _STATE_VERSION, "wheels": [vars(w) for _, w in sorted(wheels.items())]})


def write_file(path: Path, content: str | bytes) -> None:
    """Write beside and rename; an unchanged file keeps its time, which is what web caches look at."""
    data = content.encode() if isinstance(content, str) else content
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)
