"""The catalogue of known faults: data files beside this module, one per stage."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocm_wheels.errors import CatalogueError

_DATA = Path(__file__).parent / "data"
STAGES = ("source", "image", "configure", "compile", "link", "repair", "publish", "install", "run")
_REQUIRED = {"id", "title", "patterns", "cause", "remedy", "links"}
_OPTIONAL = {"releases", "general", "stops"}
# A pattern that begins with a word of any length is tried at the beginnings of words only: elsewhere it takes time
# that grows with the square of a word's length.
_WORD = re.compile(r"^(?:\(\?P<\w+>)?\\S")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One known fault.

    ``patterns`` are matched against the log with every run of white space made one space, so a message that a tool
    wrapped over lines is still found. Their named groups fill ``{name}`` in ``cause`` and ``remedy``. A ``general``
    fault yields to any other that matches the same error. One that does not ``stop`` its step (a package that was not
    found, an option that was ignored) explains a log only when nothing else failed in it.
    """

    id: str
    stage: str
    title: str
    patterns: tuple[re.Pattern[str], ...]
    cause: str
    remedy: str
    releases: str
    links: tuple[str, ...]
    general: bool
    stops: bool


@functools.cache
def load_catalogue() -> tuple[Fault, ...]:
    """Every fault, in the order of :data:`STAGES` and of the files; raises :class:`CatalogueError`."""
    return tuple(fault for stage in STAGES for fault in read_faults(_DATA / f"{stage}.toml"))


def read_faults(path: Path) -> tuple[Fault, ...]:
    """The faults of one data file, whose stem is their stage; raises :class:`CatalogueError` for a malformed one."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(f"{path} cannot be read: {error}") from error
    return tuple(_fault(entry, path) for entry in table.get("fault", []))


def _fault(entry: dict[str, Any], path: Path) -> Fault:
    where = f"{path.name}, fault {entry.get('id', '?')}"
    missing, unknown = _REQUIRED - entry.keys(), entry.keys() - _REQUIRED - _OPTIONAL
    if missing or unknown:
        raise CatalogueError(f"{where}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    try:
        patterns = tuple(re.compile(_WORD.sub(r"(?<!\\S)\g<0>", pattern)) for pattern in entry["patterns"])
    except re.error as error:
        raise CatalogueError(f"{where}: {error.pattern!r} is no regular expression: {error}") from error
    wanted = set(_PLACEHOLDER.findall(entry["cause"] + entry["remedy"]))
    for pattern in patterns:
        if wanted - pattern.groupindex.keys():
            raise CatalogueError(
                f"{where}: {pattern.pattern!r} has no group {sorted(wanted - pattern.groupindex.keys())}"
            )
    return Fault(
        id=entry["id"],
        stage=path.stem,
        title=entry["title"],
        patterns=patterns,
        cause=" ".join(entry["cause"].split()),
        remedy=" ".join(entry["remedy"].split()),
        releases=entry.get("releases", "any"),
        links=tuple(entry["links"]),
        general=entry.get("general", False),
        stops=entry.get("stops", True),
    )
