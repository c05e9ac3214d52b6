"""Turns TOML tables into frozen dataclasses: every key known, every type right, nothing missing."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from rocm_wheels.errors import MatrixError, nearest


def read_toml(path: Path) -> dict[str, Any]:
    """The file at ``path``; raises :class:`MatrixError`."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MatrixError(f"{path}: {error}") from error


def build(cls: Any, row: Mapping[str, Any], where: str) -> Any:
    """An instance of dataclass ``cls`` from a TOML table; raises :class:`MatrixError` naming ``where``."""
    hints = get_type_hints(cls)
    for key in row:
        if key not in hints:
            raise MatrixError(f"{where}: unknown key {key!r}", remedy=nearest(key, hints))
    values = {key: _convert(hints[key], value, f"{where}: {key}") for key, value in row.items()}
    required = {
        f.name
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    if missing := required - values.keys():
        raise MatrixError(f"{where}: missing {', '.join(sorted(missing))}")
    return cls(**values)


def _convert(kind: Any, value: Any, where: str) -> Any:
    if isinstance(kind, UnionType) and isinstance(value, dict):  # a table that may be missing
        kind = get_args(kind)[0]
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return build(kind, value, where)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        if isinstance(value, dict):  # a TOML table stands for ordered pairs
            return tuple((str(k), str(v)) for k, v in value.items())
        if isinstance(value, list):
            return tuple(_convert(item, v, where) for v in value)
    elif get_args(kind) and not isinstance(kind, UnionType):  # Literal
        if value in get_args(kind):
            return value
        raise MatrixError(f"{where} is {value!r}", remedy=nearest(str(value), get_args(kind)))
    elif isinstance(value, kind):
        return value
    raise MatrixError(f"{where} has the wrong type: {value!r}")
