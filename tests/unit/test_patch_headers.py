"""Every patch says why it is there, where to read more, for which versions it is and what was tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocm_wheels.source.patches import PATCHES

FIELDS = ("Why", "Link", "Versions", "Tested")
FILES = sorted(PATCHES.rglob("*.patch"))


def problems(path: Path) -> list[str]:
    header = path.read_text("utf-8").partition("\ndiff --git ")[0]
    found = [f"no {name}" for name in FIELDS if not re.search(rf"^{name}: \S", header, re.MULTILINE)]
    if not header.split("\n", 1)[0].strip() or header.startswith(tuple(f"{name}:" for name in FIELDS)):
        found.append("no title")
    if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.patch", path.name):
        found.append("name is not NNNN-title.patch")
    return found


def test_there_are_patches_to_look_at() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PATCHES)))
def test_a_patch_has_a_complete_header_and_name(path: Path) -> None:
    assert problems(path) == []


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in FILES}), ids=lambda path: str(path.relative_to(PATCHES))
)
def test_the_numbers_of_a_series_are_consecutive(folder: Path) -> None:
    numbers = [int(path.name[:4]) for path in FILES if path.parent == folder]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("field", FIELDS)
def test_a_header_without_a_field_is_seen(field: str, tmp_path: Path) -> None:
    lines = [
        "Title",
        "",
        *(f"{name}: text" for name in FIELDS if name != field),
        "",
        "diff --git a/x b/x",
        f"+{field}: no",
    ]
    path = tmp_path / "0001-title.patch"
    path.write_text("\n".join(lines), "utf-8")
    assert problems(path) == [f"no {field}"]
