"""Damaged wheels never end inspect in a traceback: it says what it cannot read, or refuses the archive."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.inspect import answer, inspect_wheel
from rocm_wheels.inspect.page import write_page
from rocm_wheels.inspect.table import tables
from tests.elf_fixtures import bundle, compressed, make_library
from tests.inspect_wheels import demo_wheel


@functools.cache
def library() -> bytes:
    """A library with plain and compressed device code and search paths; no fixture, so that failures stay short."""
    two = bundle(["gfx1030", "gfx90a:xnack-"], payload=b"\x7fELF" + bytes(300))
    with tempfile.TemporaryDirectory() as folder:
        rpath = "$ORIGIN/x:/opt/rocm-6.2.0/lib"
        return make_library(Path(folder), "libk.so", bundles=[two, compressed(two, 3)], rpath=rpath).read_bytes()


def everything(wheel: Path) -> None:
    found = inspect_wheel(wheel)
    said = tuple(answer(found, gfx) for gfx in ("gfx1030", "gfx1032"))
    json.dumps([found.as_dict(), *(a.as_dict() for a in said)])
    list(tables(found, said))
    write_page(found, said, wheel.with_suffix(".html"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=24)), min_size=1, max_size=6), st.booleans())
def test_a_damaged_library_is_told(tmp_path: Path, damage: list[tuple[float, bytes]], head: bool) -> None:
    content = bytearray(library())
    for place, noise in damage:
        at = int(place * (4096 if head else len(content) - len(noise)))
        content[at : at + len(noise)] = noise
    everything(demo_wheel(tmp_path, {"libk.so": bytes(content)}))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1), st.binary(min_size=1, max_size=16))
def test_a_damaged_archive_is_refused(tmp_path: Path, place: float, noise: bytes) -> None:
    wheel = demo_wheel(tmp_path, {"libk.so": library()})
    content = bytearray(wheel.read_bytes())
    at = int(place * (len(content) - len(noise)))
    content[at : at + len(noise)] = noise
    wheel.write_bytes(content)
    with contextlib.suppress(RocmWheelsError):
        everything(wheel)


def test_names_that_are_no_text_or_steer_a_terminal_are_written_out(tmp_path: Path) -> None:
    content = library().replace(b"/opt/rocm-6.2.0/lib", b"/opt/rocm-6.2.0/\xff\x1b[")
    wheel = demo_wheel(tmp_path, {"libk.so": content})
    everything(wheel)
    (lib,) = inspect_wheel(wheel).libraries
    assert lib.search_path.endswith("\\udcff\\x1b[")
