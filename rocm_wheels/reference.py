"""The generated pages: reference.md from tasks, settings and errors, troubleshooting.md from the catalogue."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invoke.collection import Collection

from rocm_wheels import cli
from rocm_wheels.config import PREFIX, PROJECT_ROOT, Settings
from rocm_wheels.diagnose import Fault, load_catalogue
from rocm_wheels.errors import RocmWheelsError

_GENERATED = "<!-- Written by `invoke docs`; edit {source} instead. -->\n"
_STAGES = {
    "source": "Fetching and patching",
    "image": "Containers, packages, limits, CI",
    "configure": "Configuring",
    "compile": "Compiling",
    "link": "Linking",
    "repair": "Repairing",
    "publish": "Publishing",
    "install": "Installing",
    "run": "Importing and running",
}


def pages() -> dict[str, str]:
    """The text of every generated page by its file name in docs/."""
    made = {"reference.md": _reference(_tasks()), "troubleshooting.md": _troubleshooting()}
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made.items()}


def write(folder: Path = PROJECT_ROOT / "docs") -> tuple[Path, ...]:
    """Write every generated page into ``folder``."""
    written = []
    for name, text in pages().items():
        beside = folder / f".{name}.part"
        beside.write_text(text, "utf-8")
        written.append(beside.replace(folder / name))
    return tuple(written)


def _tasks() -> Collection:
    """All tasks with their help texts, which invoke's parser takes out of the task that it has parsed."""
    for info in pkgutil.iter_modules(cli.__path__):
        importlib.reload(importlib.import_module(f"{cli.__name__}.{info.name}"))
    return cli.collection()


def _reference(tasks: Collection) -> Iterator[str]:
    yield "# Reference\n"
    yield _GENERATED.format(source="rocm_wheels/cli, config.py or errors.py")
    yield "Tasks are run by `invoke TASK`, builds and tests by `nox -s SESSION` (`nox -l`, `nox -s build -- --help`).\n"
    yield "## Tasks\n"
    for name in sorted(tasks.task_names):
        yield from _task(name, tasks[name])
    yield "## Settings\n"
    yield f"Default < `[tool.rocm-wheels]` in pyproject.toml < environment `{PREFIX}NAME` < command line.\n"
    yield "| setting | meaning |\n|---|---|"
    for field in dataclasses.fields(Settings):
        yield f"| `{field.name}` | {_cell(field.metadata['help'])} |"
    yield "\n## Exit codes\n"
    yield "0 is success, 1 and 2 belong to Python, nox and invoke, 130 and 143 are Ctrl-C and SIGTERM.\n"
    yield "| code | error | what it means |\n|---|---|---|"
    for error in sorted(errors(), key=lambda e: e.exit_code):
        yield f"| {error.exit_code} | {error.__name__} | {_cell(inspect.getdoc(error) or '')} |"


def errors(base: type[RocmWheelsError] = RocmWheelsError) -> Iterator[type[RocmWheelsError]]:
    """Every class of error that can end a run."""
    for error in base.__subclasses__():
        yield error
        yield from errors(error)


def _task(name: str, task: Any) -> Iterator[str]:
    """One task: its docstring, then an option a line as the command line takes it."""
    about, _, example = (inspect.getdoc(task.body) or "").partition("Example: ")
    arguments = task.get_arguments()
    required = [a for a in arguments if a.positional]
    words = " ".join(["invoke", name, *(a.name.upper() for a in required)])
    yield f"### {name}\n\n`{words}`: {' '.join(about.split())}\n"
    for line in example.split(", or: "):
        if line:
            yield f"    {' '.join(line.split())}\n"
    rows = [f"* {_option(argument)}" for argument in arguments]
    if rows:
        yield "\n".join(rows) + "\n"


def _option(argument: Any) -> str:
    if argument.positional:
        return f"`{argument.name.upper()}`: {argument.help}"
    value = "" if argument.kind is bool else " VALUE"
    default = f"; default `{argument.default}`" if argument.default and argument.kind is not list else ""
    return f"`--{argument.name.replace('_', '-')}{value}`: {argument.help}{default}"


def _troubleshooting() -> Iterator[str]:
    faults = load_catalogue()
    yield "# Troubleshooting\n"
    yield _GENERATED.format(source="rocm_wheels/diagnose/data")
    yield "`invoke diagnose LOG` finds the first real error of a log, whoever wrote it, and the entry below that"
    yield "explains it; `make 2>&1 | invoke diagnose -` reads a pipe. `invoke doctor` finds many before a run.\n"
    for stage, title in _STAGES.items():
        yield f"## {title}\n"
        for fault in faults:
            if fault.stage == stage:
                yield from _entry(fault)


def _entry(fault: Fault) -> Iterator[str]:
    releases = "" if fault.releases == "any" else f" ({fault.releases})"
    yield f"### {fault.title}\n"
    yield f"`{fault.id}`{releases}. {_readable(fault.cause)}\n"
    yield f"→ {_readable(fault.remedy)}\n"
    yield "Seen in " + ", ".join(f"[{_short(link)}]({link})" for link in fault.links) + ".\n"


def _readable(text: str) -> str:
    """``{name}`` of a template as a word for people."""
    return re.sub(r"\{(\w+?)\d?\}", lambda m: m[1].upper(), text.replace("{name}{name2}", "{name}")).replace("*", "\\*")


def _short(link: str) -> str:
    owner, name, _, number = link.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}#{number}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
