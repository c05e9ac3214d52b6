from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.inspect import answer, inspect_wheel
from rocm_wheels.inspect.model import Bytes
from rocm_wheels.inspect.page import page, write_page
from rocm_wheels.inspect.picture import Box, Group, draw, groups
from rocm_wheels.inspect.treemap import Rect, squarify
from tests.inspect_wheels import BLAS_DATA, demo_wheel, device_library


def overlap(a: Rect, b: Rect) -> float:
    wide = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    high = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    return max(0, wide) * max(0, high)


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=40), st.floats(20, 900), st.floats(20, 900))
def test_boxes_cover_the_space_without_overlap_in_the_ratio_of_their_values(
    values: list[int], width: float, height: float
) -> None:
    values.sort(reverse=True)
    space = Rect(3, 5, width, height)
    found = squarify(values, space)
    for value, rect in zip(values, found, strict=True):
        assert rect.area == pytest.approx(space.area * value / sum(values), rel=1e-6, abs=1e-6)
        assert overlap(rect, space) == pytest.approx(rect.area, rel=1e-6, abs=1e-6)
    for a, b in combinations(found, 2):
        assert overlap(a, b) == pytest.approx(0, abs=1e-6 * space.area)


def test_equal_values_make_near_squares() -> None:
    assert all(0.5 < r.width / r.height < 2 for r in squarify([1.0] * 12, Rect(0, 0, 800, 600)))


def test_a_picture_has_every_byte_once(tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030", "gfx1100"])
    found = inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}, data={BLAS_DATA.format("gfx1030"): b"x" * 900}))
    for measure in ("size", "packed"):
        assert sum(getattr(g.total, measure) for g in groups(found)) == getattr(found.total, measure)


def test_a_target_is_never_cut_to_another_one() -> None:
    boxes = tuple(Box(f"gfx{n}", Bytes(100, 100), f"gfx{n}") for n in (1030, 1031, 1100, 1101, 1102, 1200))
    made = (Group("big", (Box("host code", Bytes(40000, 40000)),)), Group("libk.so", boxes))
    shown = re.findall(r'<text class="name"[^>]*>([^<]*)<', draw(made, "size"))
    assert set(shown) <= {"host code", *(b.name for b in boxes), *(b.name[3:] for b in boxes)}


class Reader(HTMLParser):
    """Collects tags that would load something or run."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[tuple[str, object]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs if name in ("src", "href", "srcset", "data", "action") or name[:2] == "on"]
        if names or tag in ("script", "link", "iframe", "object", "img", "base"):
            self.loads.append((tag, names))


def test_the_page_loads_nothing_and_names_are_escaped(tmp_path: Path) -> None:
    name = "lib<b>&x.so"
    library = device_library(tmp_path, name, ["gfx1030"])
    found = inspect_wheel(demo_wheel(tmp_path, {name: library}))
    text = page(found, (answer(found, "gfx1030"),))
    reader = Reader()
    reader.feed(text)
    assert reader.loads == []
    assert name not in text
    assert "lib&lt;b&gt;&amp;x.so" in text
    assert "url(" not in text


def test_a_page_is_written_whole_and_the_same_twice(tmp_path: Path) -> None:
    found = inspect_wheel(demo_wheel(tmp_path, {"libk.so": device_library(tmp_path, "libk.so", ["gfx1030"])}))
    target = tmp_path / "page.html"
    write_page(found, (), target)
    first = target.read_bytes()
    write_page(found, (), target)
    assert target.read_bytes() == first
    assert [p.name for p in tmp_path.glob(".page*")] == []
