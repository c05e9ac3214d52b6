"""The colleague's side: what to install with, and installing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import get_args

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.console import Console, exit_codes, print_table
from rocm_wheels.errors import UsageError, nearest


@task(
    iterable=["python"],
    help={
        "index-url": "the index",
        "requirement": "NAME==VERSION",
        "dest": "directory to write to",
        "python": "interpreter to lock for (repeatable)",
    },
)
def consume(_: Context, index_url: str, requirement: str, dest: str, python: list[str] | None = None) -> None:
    """Write what a colleague installs with.

    Example: invoke consume URL torch==2.6.0+rocm5.7 setup
    """
    from rocm_wheels.publish.consume import consume as write

    with exit_codes():
        for command in write(index_url, [requirement], python or ["python3"], Path(dest), console=Console()).commands:
            print(command)


@task(help={"index-url": "the index", "requirement": "NAME==VERSION", "python": "interpreter", "tool": "pip or uv"})
def install_back(_: Context, index_url: str, requirement: str, python: str, tool: str = "pip") -> None:
    """Install into a fresh environment, by hash.

    Example: invoke install-back URL torch==2.6.0 python3.13
    """
    with exit_codes():
        install_from(index_url, requirement, python, tool)


def install_from(index_url: str, requirement: str, python: str, tool: str) -> None:
    """Install ``requirement`` from one index into a fresh environment, by the hashes that it resolves to."""
    from rocm_wheels.publish import install_back as install
    from rocm_wheels.publish.consume import hashes, lock
    from rocm_wheels.publish.install import Tool

    tools: tuple[Tool, ...] = get_args(Tool)
    known = next((t for t in tools if t == tool), None)
    if known is None:
        raise UsageError(f"no installer is called {tool!r}", remedy=nearest(tool, tools))
    console = Console()
    accepted = hashes(lock(index_url, [requirement], python, console=console))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-install-") as folder:
        environment = Path(folder) / "venv"
        result = install(
            index_url, requirement, python, tool=known, hashes=accepted, environment=environment, console=console
        )
    print_table(("installed", "version"), sorted(result.installed.items()), title=f"{tool} on {python}")
