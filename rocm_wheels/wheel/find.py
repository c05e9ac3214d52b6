"""Wheels named on a command line: a file, a directory of them, or a quoted pattern."""

from __future__ import annotations

import glob
from pathlib import Path

from rocm_wheels.errors import UsageError

_REMEDY = "name a .whl file, a directory, or a quoted pattern"


def find_wheels(text: str) -> list[Path]:
    """The wheels that ``text`` means, sorted; raises :class:`UsageError` when there is none."""
    path = Path(text)
    if path.is_dir():
        found = sorted(path.glob("*.whl"))
    elif path.is_file():
        if path.suffix != ".whl":
            raise UsageError(f"{text}: the name of a wheel ends in .whl", remedy=_REMEDY)
        found = [path]
    else:
        found = sorted(Path(name) for name in glob.glob(text) if name.endswith(".whl"))  # noqa: PTH207  may be absolute
    if not found:
        raise UsageError(f"{text}: no wheel is there", remedy=_REMEDY)
    return found
