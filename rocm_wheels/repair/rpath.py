"""The search path that an ELF file of a wheel should have, from where its needs are."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable

from rocm_wheels.repair.model import Need


def search_path(
    member: str,
    needs: Iterable[Need],
    old: str,
    *,
    folders: Collection[str],
    layouts: Collection[str],
    absolute: Iterable[str],
) -> str:
    """The entries of ``member``, ``$ORIGIN`` first, then inside the wheel, beside it, and absolute ones last.

    ``old`` entries stay when they lead to one of ``folders`` (directories with libraries) or, relative to ``$ORIGIN``,
    out of the wheel; paths of the build host and empty ones, which mean the current directory, go. ``layouts`` are
    directories below site-packages of other packages, ``absolute`` further entries. A result put in again as ``old``
    gives the same result.
    """
    here = posixpath.dirname(member)
    inside, beside = _kept(old, here, folders)
    inside += [origin(here, posixpath.dirname(n.where)) for n in needs if n.provider in ("wheel", "graft")]
    inside.sort(key=lambda entry: entry != "$ORIGIN")
    beside += [origin(here, layout) for layout in layouts]
    return ":".join(dict.fromkeys((*inside, *beside, *absolute)))


def _kept(old: str, here: str, folders: Collection[str]) -> tuple[list[str], list[str]]:
    inside, beside = [], []
    for entry in old.split(":"):
        if not entry.startswith(("$ORIGIN", "${ORIGIN}")):
            continue
        relative = entry.replace("${ORIGIN}", "$ORIGIN").removeprefix("$ORIGIN").strip("/")
        target = posixpath.normpath(posixpath.join(here, relative))
        if target == "." and here == "":
            target = ""
        if target in folders:
            inside.append(origin(here, target))
        elif not _shares_package(here, target):
            beside.append(origin(here, target))
    return inside, beside


def _shares_package(here: str, target: str) -> bool:
    """Whether ``target`` lies in the package of ``here`` or above site-packages, where nothing of use can be."""
    return target.startswith("..") or target.partition("/")[0] in ("", ".", here.partition("/")[0])


def origin(here: str, target: str) -> str:
    """``target`` as seen from directory ``here``, both below site-packages."""
    relative = posixpath.relpath(target or ".", here or ".")
    return "$ORIGIN" if relative == "." else f"$ORIGIN/{relative}"
