"""CONTRIBUTING.md shows the house as it is, and imports go one way in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rocm_wheels import errors
from rocm_wheels.config import PROJECT_ROOT

PACKAGE = PROJECT_ROOT / "rocm_wheels"
FRONT = {"__init__", "__main__", "cli", "quickstart", "reference"}  # they see every room, no room sees them
TABLE = re.findall(r"^\| (`.*?`) \|", (PROJECT_ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
RANK = {room: rank for rank, row in enumerate(TABLE) for room in re.findall(r"`(\w+)`", row)}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Rooms that a module imports, inside of functions too, and the lines."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from ((name.split(".")[1], node.lineno) for name in names if name.startswith("rocm_wheels."))


def test_every_room_is_in_the_table() -> None:
    there = {room_of(path) for path in PACKAGE.rglob("*.py")}
    assert set(RANK) == there - FRONT


def test_a_room_imports_rooms_above_it_only() -> None:
    wrong = [
        f"{path.relative_to(PROJECT_ROOT)}:{line} imports {other}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (room := room_of(path)) not in FRONT
        for other, line in imports(path)
        if other != room and (other in FRONT or RANK[other] >= RANK[room])
    ]
    assert not wrong


def test_every_error_class_is_used() -> None:
    """By name outside of imports; most are raised, some chosen from a table of causes."""
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "errors.py"]
    used = {node.id for path in files for node in nodes(path) if isinstance(node, ast.Name)}
    classes = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert classes - used == set()
