"""Lays a pinned and patched source tree: beside its place, renamed in when it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from filelock import FileLock

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import ForeignTree, SubmoduleBroken
from rocm_wheels.release import Release
from rocm_wheels.source import debian, directory, fetch, git
from rocm_wheels.source.lock import LOCKS, locked
from rocm_wheels.source.model import STATE, Checkout, CheckoutPlan, Patch, PatchStatus, Phase
from rocm_wheels.source.patches import PATCHES, apply, find_patches


def plan_checkout(
    release: Release, *, settings: Settings, patches: Path = PATCHES, locks: Path = LOCKS
) -> CheckoutPlan:
    """The source, as its lock has it, and series of ``release``; an edited patch is another fingerprint."""
    del settings  # where things are fetched from does not change what they are
    release = locked(release, locks)
    series = find_patches(release, patches)
    facts: list[object] = [repr(release.source), [(p.name, p.sha256) for p in series]]
    if release.source.kind == "directory":
        facts.append(directory.content_hash(release.source))
    return CheckoutPlan(
        release=release, patches=series, fingerprint=hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    )


def prepare(plan: CheckoutPlan, dest: Path, *, settings: Settings, console: Console) -> Checkout:
    """Fetch and verify the source of ``plan``, lay it at ``dest`` and apply the base series.

    A tree that is there already, from the same plan, is left as it is; one from another plan is replaced. Raises
    :class:`ForeignTree` for a directory that is neither and the errors of fetching and patching; ``dest`` is then
    as it was.
    """
    with _lock(dest, settings):
        state = _read_state(dest)
        if state and state["fingerprint"] == plan.fingerprint:
            return Checkout(path=dest, identity=state["identity"], patches=_recorded(plan.series("base"), state))
        if not state and not dest.absolute().is_relative_to(settings.cache):  # all in the cache is ours, half or whole
            _refuse_foreign(dest)
        beside = dest.with_name(f".{dest.name}.part")
        shutil.rmtree(beside, ignore_errors=True)
        identity = _lay(plan.release, beside, settings, console)
        applied = apply(plan.series("base"), beside)
        _report(applied, console)
        _write_state(beside, {"fingerprint": plan.fingerprint, "identity": identity, "patches": _rows(applied)})
        _swap(beside, dest)
        return Checkout(path=dest, identity=identity, patches=applied)


def apply_series(plan: CheckoutPlan, tree: Path, phase: Phase, console: Console) -> tuple[PatchStatus, ...]:
    """Apply a later series to a tree that :func:`prepare` laid, and record it; a second call changes nothing.

    Raises :class:`ForeignTree` for a tree without a record and the errors of patching.
    """
    state = _read_state(tree)
    if not state:
        raise ForeignTree(f"{tree} has no {STATE}: it is no tree that was laid here", remedy="fetch the source again")
    series = plan.series(phase)
    recorded = _recorded(series, state)
    if len(recorded) == len(series):
        return recorded
    applied = apply(series, tree)
    _report(applied, console)
    rows = {row["patch"]: row for row in [*state["patches"], *_rows(applied)]}
    _write_state(tree, {**state, "patches": [rows[name] for name in sorted(rows)]})
    return applied


def _lock(dest: Path, settings: Settings) -> FileLock:
    """One run at a time for ``dest``; kept in the cache, so that nothing lies about beside the tree."""
    folder = settings.cache / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{hashlib.sha256(os.fsencode(dest.absolute())).hexdigest()[:16]}.lock")


def _refuse_foreign(dest: Path) -> None:
    if dest.is_symlink() or dest.is_file() or (dest.is_dir() and any(dest.iterdir())):
        raise ForeignTree(
            f"{dest} is there already and is no source tree of this tool ({STATE} is missing); it stays as it is",
            remedy="name a directory that does not exist, or move this one away",
        )


def _swap(new: Path, dest: Path) -> None:
    """Put ``new`` in the place of ``dest``. Killed in between leaves no ``dest`` rather than half of the old one."""
    old = dest.with_name(f".{dest.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if dest.exists():
        dest.rename(old)
    new.rename(dest)
    shutil.rmtree(old, ignore_errors=True)


def _lay(release: Release, into: Path, settings: Settings, console: Console) -> str:
    source = release.source
    if source.kind == "git":
        return git.lay(source, into, settings=settings, console=console)
    if source.kind == "debian":
        return debian.lay(source, into, settings=settings, console=console)
    if source.kind == "directory":
        return directory.lay(source, into)
    for archive in source.archives:
        fetch.unpack(fetch.download(archive, settings=settings, console=console), into / archive.into)
    _refuse_gaps(release, into)
    return "archives " + " ".join(a.sha256 for a in source.archives)


def _refuse_gaps(release: Release, tree: Path) -> None:
    """Raise :class:`SubmoduleBroken` for submodules that archives left empty, as those of a tag do (pytorch#64527)."""
    modules = tree / ".gitmodules"
    paths = (
        re.findall(r"^\s*path\s*=\s*(.+?)\s*$", modules.read_text("utf-8"), re.MULTILINE) if modules.is_file() else []
    )
    if empty := [p for p in paths if not (tree / p).is_dir() or not any((tree / p).iterdir())]:
        raise SubmoduleBroken(
            f"the archives of {release.name} bring nothing for {', '.join(empty)}",
            remedy="add an archive for each with `into` to its source, or take git as the source",
        )


def _report(applied: tuple[PatchStatus, ...], console: Console) -> None:
    for status in applied:
        console.line(f"  patch {status.patch.name}: {status.state}")
        if status.reason:
            console.warn(f"{status.patch.name} was made for other lines: {status.reason}")


def _rows(applied: tuple[PatchStatus, ...]) -> list[dict[str, str]]:
    return [{"patch": s.patch.name, "sha256": s.patch.sha256, "state": s.state} for s in applied]


def _recorded(series: tuple[Patch, ...], state: dict[str, Any]) -> tuple[PatchStatus, ...]:
    """Those of ``series`` that the record has, with the same content; they are on the tree."""
    known = {(row["patch"], row["sha256"]) for row in state["patches"]}
    return tuple(PatchStatus(patch=p, state="already applied") for p in series if (p.name, p.sha256) in known)


def _read_state(tree: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((tree / STATE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    complete = isinstance(found, dict) and {"fingerprint", "identity", "patches"} <= found.keys()
    return found if complete else None


def _write_state(tree: Path, state: dict[str, object]) -> None:
    path = tree / STATE
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n", "utf-8")
    beside.replace(path)
