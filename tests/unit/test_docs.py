"""The documentation says what is: generated pages are current, and every command in every page exists as written.

A command that costs seconds is run. Of the others the words are parsed by the very parsers that would run them, so an
option that was renamed, a task that went or an argument that is missing is found.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import nox
import pytest
from invoke.exceptions import ParseError
from invoke.parser import Parser

import noxfile
from rocm_wheels import cli, reference
from rocm_wheels.__main__ import main as _main  # noqa: F401  README's first command
from rocm_wheels.config import PROJECT_ROOT
from rocm_wheels.diagnose import load_catalogue

PAGES = sorted([*PROJECT_ROOT.glob("*.md"), *(PROJECT_ROOT / "docs").glob("*.md")])
# What answers in seconds, writes nothing and needs no network, engine or wheel.
CHEAP = re.compile(
    r"invoke -l|invoke --help \w+|invoke (config|explain [a-z-]+|releases(?!.*--check).*)"
    r"|nox -l|nox -s build\S* -- --help"
)
_COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:.*\| )?(?P<command>(?:invoke|nox|python3? -m rocm_wheels)(?: .*)?)$")


def commands(page: Path) -> Iterator[tuple[str, bool]]:
    """Each command of this project in a page's code, and whether it is to be typed as it is: fenced or indented.

    Inline code in a sentence may name a task without its arguments.
    """
    text = page.read_text("utf-8")
    fenced = re.findall(r"^```(?:sh|console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    (\S.*)$", rest, re.MULTILINE)
    inline = _inline(rest)
    typed = [*"\n".join(fenced).replace("\\\n", " ").splitlines(), *indented]
    for whole, lines in ((True, typed), (False, inline)):
        for line in lines:
            if found := _COMMAND.match(re.sub(r"\s+#.*$|^\$ ", "", line.strip())):
                yield found["command"], whole


def _inline(text: str) -> list[str]:
    """Code in sentences and table cells; a span ends with its paragraph or table row."""
    found = []
    for part in re.split(r"\n\n|\n(?=\|)", re.sub(r"^    .*$", "", text, flags=re.MULTILINE)):
        found += [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", part)]
    return found


ALL = sorted({(page.name, *command) for page in PAGES for command in commands(page)})


@cache
def parser() -> Parser:
    return Parser(contexts=cli.collection().to_contexts())


def parse_invoke(words: list[str], *, whole: bool = True) -> None:
    if not words or words[0] in ("-l", "--help", "--list") or words[0].isupper():
        return
    try:
        parser().parse_argv(words)
    except ParseError as error:
        if whole or "did not receive required positional" not in str(error):
            raise


def parse_nox(words: list[str]) -> None:
    ours, _, theirs = (part.strip() for part in shlex.join(words).partition(" -- "))
    known = nox.registry.get()
    chosen = [word for word in shlex.split(ours) if not word.startswith("-")]
    for name in chosen:
        # `build-3.13` stands for a session per Python; `…` and capitals for any of them
        assert name in known or re.fullmatch(r"[A-Z.…]+|build-3\.X", name), f"there is no session {name}"
    if theirs and any(name.startswith("build") for name in chosen):
        arguments = shlex.split(theirs)
        if "--help" not in arguments and not re.search(r"…|\.\.\.", theirs):
            noxfile._options(cast(Any, SimpleNamespace(posargs=arguments)), "build")


@pytest.mark.parametrize(("page", "command", "whole"), ALL, ids=lambda value: str(value)[:60])
def test_every_command_in_the_documentation_exists(page: str, command: str, whole: bool) -> None:
    words = shlex.split(command)
    if words[0] == "invoke":
        parse_invoke(words[1:], whole=whole)
    elif words[0] == "nox":
        parse_nox(words[1:])
    else:
        parse_nox(words[3:])


@pytest.mark.parametrize("command", sorted({c for _, c, _ in ALL if CHEAP.fullmatch(c)}))
def test_cheap_commands_run(command: str) -> None:
    module, *words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", module, *words], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_command_is_found() -> None:
    for words in (["repare", "x"], ["repair"], ["repair", "x", "--modus", "fat"]):
        with pytest.raises(Exception, match=r"No idea what|did not receive"):
            parse_invoke(words)
    with pytest.raises(AssertionError):
        parse_nox(["-s", "biuld"])
    with pytest.raises(SystemExit):
        parse_nox(["-s", "build", "--", "--until-stage", "canary"])


def outline(page: Path) -> dict[str, object]:
    """What a translation shares with its original: code, headings by level, rows of tables, where links lead."""
    text = page.read_text("utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        "code": re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL),
        "indented": re.findall(r"^    .*$", prose, re.MULTILINE),
        "headings": [len(level) for level in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "rows": re.findall(r"^\|", prose, re.MULTILINE),
        "links": sorted(link for link in re.findall(r"\]\(([^)]+)\)", prose) if not link.startswith("README")),
    }


def test_the_chinese_readme_is_in_step_with_the_english_one() -> None:
    assert outline(PROJECT_ROOT / "README.zh.md") == outline(PROJECT_ROOT / "README.md")


def test_there_are_commands_to_check() -> None:
    assert len(ALL) > 40


@pytest.mark.parametrize("name", reference.pages())
def test_generated_pages_are_current(name: str) -> None:
    current = (PROJECT_ROOT / "docs" / name).read_text("utf-8")
    assert current == reference.pages()[name], "run `invoke docs`"


def test_the_reference_has_every_task_error_and_fault() -> None:
    made = reference.pages()
    assert all(f"### {name}\n" in made["reference.md"] for name in cli.collection().task_names)
    assert all(f"| {error.__name__} |" in made["reference.md"] for error in reference.errors())
    assert all(f"`{fault.id}`" in made["troubleshooting.md"] for fault in load_catalogue())
    assert "None" not in made["reference.md"], "an option without a help text"


def test_a_page_that_is_written_is_the_page_that_is_expected(tmp_path: Path) -> None:
    assert {path.name for path in reference.write(tmp_path)} == set(reference.pages())
    assert all((tmp_path / name).read_text("utf-8") == text for name, text in reference.pages().items())
    assert not list(tmp_path.glob(".*"))
