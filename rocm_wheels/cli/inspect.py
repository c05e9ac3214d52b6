"""What is in a wheel, and whether it runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import Console, exit_codes, print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from rocm_wheels.inspect import Answer, Inspection


@task(
    help={
        "wheel": "wheel, directory or quoted pattern",
        "gpu": "card to answer for: a target, a product name in quotes, or 'auto' for this machine's",
        "html": "write a page with a picture of its bytes to this file (one wheel)",
        **JSON,
    }
)
def inspect(_: Context, wheel: str, gpu: str = "", html: str = "", json: bool = False) -> None:
    """Show what is in wheels: bytes, device code per GPU, needs, platform.

    Example: invoke inspect dist/fat --gpu "RX 6600"
    """
    from pathlib import Path

    from rocm_wheels.config import load
    from rocm_wheels.inspect import answer, inspect_wheel
    from rocm_wheels.inspect.gpus import wanted_gpus
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes(as_json=json):
        console = Console(quiet=json)
        targets = wanted_gpus(gpu)
        wheels = find_wheels(wheel)
        results = []
        for path in wheels:
            with console.step(f"reading {path.name}"):
                found = inspect_wheel(path, memory_mib=load().memory)
            results.append((found, tuple(answer(found, target) for target in targets)))
        if html:
            _write_page(results, Path(html), console)
        if json:
            print_json([{**found.as_dict(), "answers": [a.as_dict() for a in answers]} for found, answers in results])
            return
        _print(results)


def _print(results: list[tuple[Inspection, tuple[Answer, ...]]]) -> None:
    from rocm_wheels.inspect.table import tables

    for found, answers in results:
        for table in tables(found, answers):
            print_table(table.columns, table.rows, title=table.title)
            print()


def _write_page(results: list[tuple[Inspection, tuple[Answer, ...]]], path: Path, console: Console) -> None:
    from rocm_wheels.errors import UsageError
    from rocm_wheels.inspect.page import write_page

    if len(results) != 1:
        raise UsageError(f"--html takes one wheel, {len(results)} are named", remedy="name a single .whl file")
    write_page(*results[0], path)
    console.line(f"written: {path}")
