"""What is known of the releases of a framework, cell by cell, each with its source.

A data file has one table per column. Its keys are version specifiers, its values cells::

    [glibc]
    "<2.6" = { value = "2.17", source = "builder" }
    ">=2.6" = { unknown = "why nobody could read it" }

Exactly one key of a column fits a release. An unknown cell has no value: whoever needs it calls :meth:`Cell.require`
and fails with the reason, so a guess never reaches a build.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from rocm_wheels.errors import MatrixError, UnknownFact, nearest

T = TypeVar("T")
Backend = Literal["setup.py", "scikit-build-core"]


@dataclass(frozen=True, kw_only=True)
class Cell(Generic[T]):
    """One fact: ``value`` and the ``source`` it was read from. An unknown one has the reason in ``note``."""

    value: T | None = None
    source: str = ""
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether somebody could read it."""
        return self.value is not None

    def require(self, what: str) -> T:
        """The value; raises :class:`UnknownFact` naming ``what``."""
        if self.value is None:
            raise UnknownFact(
                f"{what} is not known: {self.note}",
                remedy="if you know it, add it with its source to rocm_wheels/release/data",
            )
        return self.value


@dataclass(frozen=True, kw_only=True)
class Trap:
    """Something that goes wrong with a release, and where that was reported.

    ``rocm`` and ``gpus`` narrow it to some ROCm versions and targets; empty means all.
    """

    text: str
    source: str
    rocm: str = ""
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The row of one release. :data:`COLUMNS` says what each column means."""

    version: str
    url: Cell[str]
    commit: Cell[str]
    tag_commit: Cell[str]
    rocm: Cell[tuple[str, ...]]
    amd_url: Cell[str]
    amd_branch: Cell[str]
    amd_rocm: Cell[tuple[str, ...]]
    pythons: Cell[tuple[str, ...]]
    requires_python: Cell[str]
    archs: Cell[tuple[str, ...]]
    base_image: Cell[str]
    glibc: Cell[str]
    cxx11_abi: Cell[bool]
    cxx_standard: Cell[int]
    triton_package: Cell[str]
    triton: Cell[str]
    numpy: Cell[tuple[str, ...]]
    numpy_runtime: Cell[str]
    cmake: Cell[str]
    setuptools: Cell[str]
    backend: Cell[Backend]
    vision: Cell[str]
    audio: Cell[str]
    traps: tuple[Trap, ...] = ()

    def cells(self) -> dict[str, Cell[Any]]:
        """Every column and its cell, in order."""
        return {name: getattr(self, name) for name in COLUMNS}

    def archs_for(self, rocm: str) -> tuple[str, ...]:
        """The default targets with ROCm ``rocm``; those that need another ROCm (``gfx942 rocm>=6.0``) left out."""
        found = []
        for entry in self.archs.require(f"the default arch list of {self.version}"):
            arch, _, condition = entry.partition(" rocm")
            if SpecifierSet(condition).contains(rocm):
                found.append(arch)
        return tuple(found)


COLUMNS: dict[str, str] = {
    "url": "git repository",
    "commit": "commit that the official wheels were built from",
    "tag_commit": "commit of the tag, where it is another one",
    "rocm": "ROCm versions of the official wheels",
    "amd_url": "AMD's fork",
    "amd_branch": "release branch of the fork",
    "amd_rocm": "ROCm versions that AMD supports the release on",
    "pythons": "CPythons of the official ROCm wheels",
    "requires_python": "Requires-Python of the wheels",
    "archs": "default GPU targets of the official wheels",
    "base_image": "image of the official build",
    "glibc": "oldest glibc that the official wheels run on",
    "cxx11_abi": "new C++ ABI of libstdc++",
    "cxx_standard": "C++ standard of the sources",
    "triton_package": "name under which Triton for ROCm is asked for",
    "triton": "pinned version of Triton",
    "numpy": "numpy that the official build was made against",
    "numpy_runtime": "numpy at run time",
    "cmake": "CMake window",
    "setuptools": "setuptools window",
    "backend": "build backend",
    "vision": "companion torchvision",
    "audio": "companion torchaudio",
}


def read_facts(table: Mapping[str, Any], where: str) -> tuple[Facts, ...]:
    """The rows of one framework's file, in the order of ``releases``.

    Raises :class:`MatrixError` for a column, source or key that is unknown, and for a release that no key of a
    column fits, or more than one.
    """
    columns = dict(table)
    releases: list[str] = columns.pop("releases")
    sources: dict[str, str] = columns.pop("sources")
    traps = columns.pop("trap", [])
    for name in [*columns, *COLUMNS]:
        if name not in COLUMNS:
            raise MatrixError(f"{where}: unknown column {name!r}", remedy=nearest(name, COLUMNS))
        if name not in columns:
            raise MatrixError(f"{where}: the column {name} is missing")
    cells = {
        name: {key: _cell(name, row, sources, f"{where} [{name}] {key!r}") for key, row in columns[name].items()}
        for name in COLUMNS
    }
    return tuple(
        Facts(
            version=version,
            traps=_traps(traps, version, sources, where),
            **{name: _pick(cells[name], version, f"{where} [{name}]") for name in COLUMNS},
        )
        for version in releases
    )


def _pick(column: Mapping[str, Cell[Any]], version: str, where: str) -> Cell[Any]:
    found = [key for key in column if _fits(key, version, where)]
    if len(found) != 1:
        keys = ", ".join(repr(key) for key in found) or "no key"
        raise MatrixError(f"{where}: {keys} fit {version}; exactly one must")
    return column[found[0]]


def _fits(key: str, version: str, where: str) -> bool:
    try:
        return SpecifierSet(key).contains(version)
    except InvalidSpecifier as error:
        raise MatrixError(f"{where}: {key!r} is no version specifier such as '>=2.6'") from error


def _cell(column: str, row: Mapping[str, Any], sources: Mapping[str, str], where: str) -> Cell[Any]:
    """A cell from its table: ``value`` and ``source``, or ``unknown`` with the reason."""
    known = {"value", "source", "note"} if "value" in row else {"unknown", "source"}
    if extra := row.keys() - known:
        raise MatrixError(f"{where}: unknown key {sorted(extra)[0]!r}", remedy=nearest(sorted(extra)[0], known))
    if "value" not in row:
        if not row.get("unknown"):
            raise MatrixError(f"{where}: a cell has a value, or says in `unknown` why there is none")
        return Cell(note=row["unknown"], source=_cited(row.get("source", ""), sources, where))
    if not row.get("source"):
        raise MatrixError(f"{where}: the value has no source")
    value = tuple(row["value"]) if isinstance(row["value"], list) else row["value"]
    if not _right_type(column, value):
        raise MatrixError(f"{where}: the value has the wrong type: {value!r}")
    return Cell(value=value, source=_cited(row["source"], sources, where), note=row.get("note", ""))


@functools.cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Facts)


def _right_type(column: str, value: object) -> bool:
    """Whether ``value`` is what the annotation ``Cell[…]`` of the column promises."""
    wanted = get_args(_hints()[column])[0]
    if get_origin(wanted) is tuple:
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    if choices := get_args(wanted):
        return value in choices
    return type(value) is wanted


def _cited(text: str, sources: Mapping[str, str], where: str) -> str:
    """``"ti, builder"`` written out from ``[sources]``; whatever is no bare word stands as it is."""
    words = text.split(", ") if text else []
    for word in words:
        if re.fullmatch(r"[a-z0-9-]+", word) and word not in sources:
            raise MatrixError(f"{where}: no source is called {word!r}", remedy=nearest(word, sources))
    return "; ".join(sources.get(word, word) for word in words)


def _traps(rows: list[dict[str, Any]], version: str, sources: Mapping[str, str], where: str) -> tuple[Trap, ...]:
    found = []
    for row in rows:
        if not {"for", "text", "source"} <= row.keys() <= {"for", "text", "source", "rocm", "gpus"}:
            raise MatrixError(
                f"{where}: a trap has `for`, `text`, `source`, and perhaps `rocm` and `gpus`; found {row}"
            )
        if _fits(row["for"], version, f"{where} [[trap]]"):
            source = _cited(row["source"], sources, where)
            gpus = tuple(row.get("gpus", ()))
            found.append(Trap(text=row["text"], source=source, rocm=row.get("rocm", ""), gpus=gpus))
    return tuple(found)
