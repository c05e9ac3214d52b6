"""Reads ``data/`` into a :class:`Matrix` and refuses rows that are unknown, incomplete or contradictory.

``images.toml`` has a table per builder image. ``<framework>.toml`` has the facts about a framework's releases, a table
per column (see :mod:`rocm_wheels.release.facts`). ``builds/<framework>.toml`` says what is built where: recipes by
name, and ``[[build]]`` rows that tie releases to images, each with a source of its own where it is not upstream's and
a table ``on.<image>`` for what differs in one of its images. A framework without facts has ``[[release]]`` rows there.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocm_wheels.errors import MatrixError, nearest
from rocm_wheels.gpu import check_arch
from rocm_wheels.release.facts import Facts, read_facts
from rocm_wheels.release.matrix import Matrix
from rocm_wheels.release.model import Build, Image, OtherWheel, Recipe, Release, Source
from rocm_wheels.release.schema import build, read_toml

DATA = Path(__file__).parent / "data"

_RECIPE = {field.name for field in dataclasses.fields(Recipe)}


@functools.cache
def load_matrix(data: Path = DATA) -> Matrix:
    """Read and check every data file; raises :class:`MatrixError` naming the file and row."""
    images = {
        name: build(Image, {"name": name, **row}, f"images.toml [{name}]")
        for name, row in read_toml(data / "images.toml").items()
    }
    releases = tuple(r for path in sorted((data / "builds").glob("*.toml")) for r in _framework(path, data))
    for release in releases:
        _check_release(release, images)
    return Matrix(images=images, releases=releases, wheels=_other_wheels(data / "wheels.toml"))


def _other_wheels(path: Path) -> tuple[OtherWheel, ...]:
    rows = read_toml(path).get("wheel", [])
    found: list[OtherWheel] = [build(OtherWheel, row, f"{path.name} {row.get('distribution', '')}") for row in rows]
    for wheel in found:
        if bool(wheel.rocm) == bool(wheel.unknown) or bool(wheel.rocm) != bool(wheel.source):
            raise MatrixError(f"{path.name} {wheel.distribution}: a row has `rocm` and `source`, or `unknown`")
    return tuple(found)


def _framework(path: Path, data: Path) -> list[Release]:
    """The releases of one framework, each with the ``[[build]]`` rows that name it."""
    table = read_toml(path)
    where = f"builds/{path.name}"
    shared, recipes = table.pop("framework", {}), table.pop("recipe", {})
    rows = [each for row in table.pop("build", []) for each in _per_image(row, where)]
    plain = table.pop("release", [])
    if table:
        raise MatrixError(f"{where}: unknown tables {', '.join(table)}")
    page = data / path.name
    facts = read_facts(read_toml(page), page.name) if page.is_file() else ()
    bases = [*(_of_facts(f) for f in facts), *plain]
    versions = [base.get("version") for base in bases]
    releases = [
        _release(
            {**shared, **base}, [r for r in rows if version in r.get("releases", [])], recipes, f"{where} {version}"
        )
        for version, base in zip(versions, bases, strict=True)
    ]
    for version in versions:
        if versions.count(version) > 1:
            raise MatrixError(f"{where}: {version} has two rows")
    for row in rows:
        for version in row.get("releases", []):
            if version not in versions:
                raise MatrixError(f"{where}: unknown release {version!r}", remedy=nearest(version, versions))
    return releases


def _per_image(row: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """``row`` once for each of its images that has a table ``on.<image>``, and once for the others."""
    images, own = row.get("images", []), row.get("on", {})
    for name in own:
        if name not in images:
            raise MatrixError(f"{where}: on.{name} is for an image that the row does not name")
    shared = {key: value for key, value in row.items() if key != "on"}
    rows = [{**_merged(shared, own[name]), "images": [name]} for name in own]
    others = [name for name in images if name not in own]
    return rows if rows and not others else [{**shared, "images": others}, *rows]


def _merged(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``below`` with the keys of ``above`` over it, tables key by key."""
    both = {
        k: {**below[k], **v} if isinstance(v, dict) and isinstance(below.get(k), dict) else v for k, v in above.items()
    }
    return {**below, **both}


def _of_facts(facts: Facts) -> dict[str, Any]:
    """A row from the facts: upstream's repository at the commit of the official wheels."""
    commit = facts.commit
    source = Source(
        kind="git", url=facts.url.value or "", commit=commit.value or "", origin=commit.source or commit.note
    )
    return {
        "version": facts.version,
        "pythons": list(facts.pythons.value or ()),
        "archs": [entry.partition(" ")[0] for entry in facts.archs.value or ()],
        "origin": facts.rocm.source,
        "source": source,
        "facts": facts,
    }


def _release(row: dict[str, Any], rows: list[dict[str, Any]], recipes: Mapping[str, Any], where: str) -> Release:
    """One release; its own source and recipe are those of its first build, or upstream's and the era's."""
    facts: Facts | None = row.get("facts")
    era = facts.backend.value if facts else None
    builds = [_build(each, row.get("source"), era, recipes, where) for each in rows]
    if builds:
        row = {**row, "source": builds[0].source, "recipe": builds[0].recipe}
    elif era:
        row = {**row, "recipe": build(Recipe, _recipe(recipes, era, where), f"{where}: recipe {era}")}
    found: Release = build(Release, {**row, "builds": builds}, where)
    return found


def _build(
    row: dict[str, Any], upstream: Source | None, era: str | None, recipes: Mapping[str, Any], where: str
) -> Build:
    """A ``[[build]]`` row: keys of a recipe in it go over the recipe that it names, tables merged key by key."""
    base = _merged(_recipe(recipes, row.get("recipe", era), where), {k: row[k] for k in _RECIPE & row.keys()})
    rest = {key: value for key, value in row.items() if key not in _RECIPE | {"releases", "recipe"}}
    recipe = build(Recipe, base, f"{where}: recipe")
    found: Build = build(Build, {"source": upstream, **rest, "recipe": recipe}, f"{where}: [[build]]")
    return found


def _recipe(recipes: Mapping[str, Any], name: str | None, where: str) -> dict[str, Any]:
    if name is None or name not in recipes:
        raise MatrixError(f"{where}: no recipe is called {name!r}", remedy=nearest(str(name), recipes))
    return dict(recipes[name])


def _check_release(release: Release, images: Mapping[str, Image]) -> None:
    where = release.name
    for name in release.images:
        if name not in images:
            raise MatrixError(f"{where}: unknown image {name!r}", remedy=nearest(name, images))
        if release.images.count(name) > 1:
            raise MatrixError(f"{where}: two [[build]] rows for image {name}")
    facts = release.facts
    if not release.archs and (facts is None or facts.archs.known):
        raise MatrixError(f"{where}: the default arch list is empty")
    for arch in release.archs:
        check_arch(arch)
    for python in release.pythons:
        if not re.fullmatch(r"3\.\d+t?", python):
            raise MatrixError(f"{where}: {python!r} is not a Python version such as 3.13")
    for source in (release.source, *(b.source for b in release.builds)):
        if source.kind != "git" or source.commit or facts is None or facts.commit.known:
            _check_source(source, where)
    for recipe in (release.recipe, *(b.recipe for b in release.builds)):
        if not set(recipe.hip_libraries) <= set(recipe.required_files):
            raise MatrixError(f"{where}: hip_libraries must be among required_files")


def _check_source(source: Source, where: str) -> None:
    needed = {
        "git": ("url", "commit"),
        "archive": ("archives",),
        "debian": ("package", "version", "suite", "sha256"),
        "directory": ("path",),
    }[source.kind]
    if missing := [name for name in needed if not getattr(source, name)]:
        raise MatrixError(f"{where}: a {source.kind} source needs {', '.join(missing)}")
    if source.kind == "git" and not re.fullmatch(r"[0-9a-f]{40}", source.commit):
        raise MatrixError(f"{where}: {source.commit!r} is not a full commit id")
    for digest in [a.sha256 for a in source.archives] + ([source.sha256] if source.sha256 else []):
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise MatrixError(f"{where}: {digest!r} is not a sha256")
