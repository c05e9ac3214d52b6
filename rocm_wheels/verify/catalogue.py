"""All checks, one entry each in `checks.toml`; `invoke explain ID` prints an entry and docs/verify.md lists them."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping

from rocm_wheels.errors import UnknownCheck, nearest
from rocm_wheels.verify.model import Check, Finding, Severity


@functools.cache
def catalogue() -> Mapping[str, Check]:
    """Every check by its id, in the order of the report."""
    text = importlib.resources.files("rocm_wheels.verify").joinpath("checks.toml").read_text("utf-8")
    return {
        id_: Check(id=id_, **{**row, "severity": Severity[row["severity"].upper()]})
        for id_, row in tomllib.loads(text).items()
    }


def explain(id_: str) -> Check:
    """The entry ``id_``; raises :class:`UnknownCheck`."""
    if id_ not in catalogue():
        raise UnknownCheck(f"there is no check {id_!r}", remedy=nearest(id_, catalogue()))
    return catalogue()[id_]


def select(names: tuple[str, ...]) -> frozenset[str]:
    """The ids that ``names`` mean, each an id or a group; raises :class:`UnknownCheck`."""
    chosen: set[str] = set()
    groups = {check.group for check in catalogue().values()}
    for name in names:
        if name in groups:
            chosen.update(check.id for check in catalogue().values() if check.group == name)
        elif name in catalogue():
            chosen.add(name)
        else:
            raise UnknownCheck(
                f"there is no check or group {name!r}", remedy=nearest(name, [*catalogue(), *sorted(groups)])
            )
    return frozenset(chosen)


def finding(id_: str, member: str, evidence: str, *, offset: int | None = None, symbol: str = "") -> Finding:
    """A finding of check ``id_`` on ``member``."""
    return Finding(explain(id_), member, evidence, offset, symbol)
