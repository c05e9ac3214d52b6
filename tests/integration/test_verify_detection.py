"""Faults of published wheels: verify sees each by the right check; docs/verify.md says who else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify_corruptions import good_files
from tests.verify_detection import TOOLS, Row, accepting, good_parts, headings, judged, rows, table
from tests.verify_docs import PAGE, part

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    return list(rows(tmp_path_factory.mktemp("faults")))


def test_nobody_has_anything_against_the_good_wheel(tmp_path: Path) -> None:
    wheel = good_parts(good_files(tmp_path / "good")).write(tmp_path)
    assert judged(wheel) == set()
    assert accepting(wheel) == set(TOOLS)


def test_verify_sees_every_fault_by_the_right_check(found: list[Row]) -> None:
    assert [f"{r.fault}" for r in found if r.fault.check not in r.found] == []


def test_the_table_of_the_documentation_is_what_was_seen(found: list[Row]) -> None:
    documented = part(PAGE.read_text("utf-8"), "detection")
    if not documented.startswith(headings()):
        pytest.skip("other versions of the tools than the documented ones")
    assert documented == table(found), "write it anew: python -m tests.verify_detection"
