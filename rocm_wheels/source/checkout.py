"""Lays a pinned and patched source tree: beside its place, renamed in when it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.release import Release
from rocm_wheels.source import debian, directory, fetch, git
from rocm_wheels.source.model import STATE, Checkout, CheckoutPlan, PatchStatus, Phase
from rocm_wheels.source.patches import PATCHES, apply, find_patches


def plan_checkout(release: Release, *, settings: Settings, patches: Path = PATCHES) -> CheckoutPlan:
    """The source and series of ``release``; an edited patch is another fingerprint."""
    del settings  # where things are fetched from does not change what they are
    series = find_patches(release, patches)
    facts: list[object] = [repr(release.source), [(p.name, p.sha256) for p in series]]
    if release.source.kind == "directory":
        facts.append(directory.content_hash(release.source))
    return CheckoutPlan(
        release=release, patches=series, fingerprint=hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    )


def prepare(plan: CheckoutPlan, dest: Path, *, settings: Settings, console: Console) -> Checkout:
    """Fetch and verify the source of ``plan``, lay it at ``dest`` and apply the base series.

    A tree that is there already, from the same plan, is left as it is. Raises the errors of fetching and patching;
    ``dest`` is then as it was.
    """
    state = _read_state(dest)
    if state and state["fingerprint"] == plan.fingerprint:
        return Checkout(path=dest, identity=state["identity"], patches=())
    beside = dest.with_name(f".{dest.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    identity = _lay(plan.release, beside, settings, console)
    applied = apply(plan.series("base"), beside)
    _report(applied, console)
    _write_state(beside, {"fingerprint": plan.fingerprint, "identity": identity, "patches": _rows(applied)})
    shutil.rmtree(dest, ignore_errors=True)
    beside.rename(dest)
    return Checkout(path=dest, identity=identity, patches=applied)


def apply_series(plan: CheckoutPlan, tree: Path, phase: Phase, console: Console) -> tuple[PatchStatus, ...]:
    """Apply a later series to a tree that :func:`prepare` laid, and record it; a second call changes nothing."""
    state = _read_state(tree) or {}
    applied = apply(plan.series(phase), tree)
    _report(applied, console)
    rows = {row["patch"]: row for row in [*_rows(applied), *state.get("patches", [])]}
    _write_state(tree, {**state, "patches": [rows[name] for name in sorted(rows)]})
    return applied


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
    return "archives " + " ".join(a.sha256 for a in source.archives)


def _report(applied: tuple[PatchStatus, ...], console: Console) -> None:
    for status in applied:
        console.line(f"  patch {status.patch.name}: {status.state}")


def _rows(applied: tuple[PatchStatus, ...]) -> list[dict[str, str]]:
    return [{"patch": s.patch.name, "sha256": s.patch.sha256, "state": s.state} for s in applied]


def _read_state(tree: Path) -> dict[str, str] | None:
    try:
        found: dict[str, str] = json.loads((tree / STATE).read_text("utf-8"))
        return found
    except (OSError, ValueError):
        return None


def _write_state(tree: Path, state: dict[str, object]) -> None:
    path = tree / STATE
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n", "utf-8")
    beside.replace(path)
