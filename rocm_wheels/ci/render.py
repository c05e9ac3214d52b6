"""Templates with the cells filled in; ``@@name`` stands for a value, so that the CI systems' own ``$`` stays."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rocm_wheels.ci.cells import Cell
from rocm_wheels.errors import UsageError, nearest

_TEMPLATES = Path(__file__).parent / "templates"

#: The files of each CI system, by the template that they come from.
SYSTEMS: Mapping[str, Mapping[str, str]] = {
    "gitlab": {"gitlab.yml": ".gitlab-ci.yml", "gitlab-wheel.yml": ".gitlab/rocm-wheels.yml"},
    "github": {"github.yml": ".github/workflows/rocm-wheels.yml"},
}


class _Template(string.Template):
    delimiter = "@@"
    idpattern = "[a-z_]+"


def render(system: str, cells: Sequence[Cell], *, registry: str = "", limit_mib: int = 2000) -> dict[str, str]:
    """Every file of ``system`` by its path in the repository.

    ``registry`` is where builder images are kept, "" the CI system's own; ``limit_mib`` what its artifacts may
    weigh. Raises :class:`UsageError` for an unknown system.
    """
    if system not in SYSTEMS:
        raise UsageError(f"there is no template for {system!r}", remedy=nearest(system, SYSTEMS))
    images = {cell.image: cell.tag for cell in cells}
    values = {
        "command": f"invoke ci {system} --release {cells[0].release}",
        "release": cells[0].release,
        "registry": registry or {"gitlab": "$CI_REGISTRY_IMAGE", "github": "ghcr.io/${{ github.repository }}"}[system],
        "limit": str(limit_mib),
        "images": _flow([{"IMAGE": name, "TAG": tag} for name, tag in sorted(images.items())]),
        "cells": _flow([_variables(cell) for cell in cells]),
        "include": _flow([asdict(cell) for cell in cells]),
        "include_images": _flow([{"image": name, "tag": tag} for name, tag in sorted(images.items())]),
    }
    return {
        target: _Template((_TEMPLATES / name).read_text("utf-8")).substitute(values)
        for name, target in SYSTEMS[system].items()
    }


def _variables(cell: Cell) -> dict[str, str]:
    return {name.upper(): value for name, value in asdict(cell).items() if name != "release"}


def _flow(rows: Sequence[Mapping[str, str]]) -> str:
    """``rows`` as a YAML sequence, one line each: JSON is YAML."""
    return "".join(f"\n        - {json.dumps(row)}" for row in rows)


def write(files: Mapping[str, str], folder: Path) -> tuple[Path, ...]:
    """Write rendered files below ``folder``; one that is there and was not written by this tool is refused."""
    paths = {folder / name: text for name, text in files.items()}
    for path in paths:
        if path.exists() and "Rendered by `invoke ci" not in path.read_text("utf-8", "replace"):
            raise UsageError(f"{path} is there and not ours", remedy="name another directory by --dest")
    for path, text in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.part")
        beside.write_text(text, "utf-8")
        beside.replace(path)
    return tuple(paths)
