"""The front ends read like a table of contents."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from invoke.context import Context
from invoke.program import Program

from rocm_wheels.cli import collection
from rocm_wheels.console import print_table
from rocm_wheels.errors import UnknownImage, UsageError

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


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("explian x", "did you mean explain?"),
        ("repair", "invoke --help repair"),
        ("gpu --wheel dist", "invoke --help gpu"),
        ("nothing-like-it", "invoke -l"),
    ],
)
def test_a_command_line_that_invoke_cannot_read_ends_with_what_to_type(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        Program(namespace=collection()).run(["invoke", *line.split()])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and f"  → {hint}" in said


def test_no_pages_are_left_in_a_directory_without_wheels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        TASKS["index"](Context(), directory=str(tmp_path))
    assert ended.value.code == UsageError.exit_code
    assert "no wheel is there" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_wheel_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "README.md"
    page.write_text("# no wheel\n", "utf-8")
    with pytest.raises(SystemExit):
        TASKS["verify"](Context(), wheel=str(page))
    assert "the name of a wheel ends in .whl" in capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 200])
def test_a_narrow_terminal_cuts_nothing_off(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    row = ("pytorch-2.14.1", "official wheel", "HSA_OVERRIDE_GFX_VERSION=10.3.0")
    print_table(("release", "from", "set"), [row])
    said = capsys.readouterr().out
    assert all(cell in said for cell in row) and "…" not in said


@pytest.mark.parametrize(("task", "option", "words"), [("serve", "port", "directory"), ("ci", "limit", "system")])
def test_what_is_no_number_is_named(
    task: str, option: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "simple").mkdir()
    (tmp_path / ".rocm-wheels-index.json").touch()
    value = str(tmp_path) if words == "directory" else "gitlab"
    with pytest.raises(SystemExit) as ended:
        TASKS[task](Context(), **{words: value, option: "x"})
    assert ended.value.code == UsageError.exit_code
    assert f"--{option} 'x'" in capsys.readouterr().err


def test_an_interpreter_may_be_a_name_on_path() -> None:
    from rocm_wheels.publish.install import interpreter_path

    assert Path(interpreter_path("python3")).is_absolute()
