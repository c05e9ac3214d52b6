"""The front ends read like a table of contents."""

from __future__ import annotations

import re

import pytest
from invoke.context import Context

from rocm_wheels.cli import collection
from rocm_wheels.errors import UnknownImage

TASKS = dict(collection().tasks)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_task_says_what_it_does_in_one_line_and_gives_an_example(name: str) -> None:
    first, _, rest = (TASKS[name].__doc__ or "").strip().partition("\n")
    assert first.endswith(".") and len(first) <= 79
    assert re.search(r"Examples?: invoke ", rest)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_option_of_a_task_has_a_help_text(name: str) -> None:
    task = TASKS[name]
    assert [a.name for a in task.get_arguments() if not a.help] == []


def test_an_unknown_image_ends_with_its_own_exit_code_and_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        TASKS["image"](Context(), name="debian-trixe")
    assert ended.value.code == UnknownImage.exit_code
    assert "did you mean debian-trixie" in capsys.readouterr().err
