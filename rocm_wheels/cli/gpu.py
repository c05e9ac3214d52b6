"""The GPUs of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import Console, exit_codes, print_json, print_table

if TYPE_CHECKING:
    from rocm_wheels.inspect import Inspection
    from rocm_wheels.inspect.machine import Machine


@task(
    help={
        "wheels": "wheels to ask whether they serve a card: a file, directory, pattern, or a project page of an index",
        "releases": "say as well which releases serve each card",
        **JSON,
    }
)
def gpu(_: Context, wheels: str = "", releases: bool = False, json: bool = False) -> None:
    """Show this machine's AMD GPUs, who may use them, and what runs on them.

    Example: invoke gpu --wheels dist
    """
    import os
    from pathlib import Path

    from rocm_wheels.inspect.gpus import rocminfo_program
    from rocm_wheels.inspect.machine import look

    with exit_codes(as_json=json):
        on_index = "://" in wheels
        machine = look(
            Path("/"),
            os.environ,
            rocminfo=rocminfo_program(),
            wheels=[] if on_index else _inspect(wheels, Console(quiet=json)),
            indexed=_archs_on_index(wheels) if on_index else {},
        )
        served = _releases(machine) if releases else {}
        if json:
            print_json({**machine.as_dict(), **({"releases": served} if releases else {})})
            return
        _print(machine)
        for gfx, rows in served.items():
            print_table(tuple(rows[0]), [tuple(row.values()) for row in rows], title=f"Releases for {gfx}")


def _archs_on_index(address: str) -> dict[str, tuple[str, ...]]:
    import requests

    from rocm_wheels.config import load
    from rocm_wheels.publish.served import archs_on_index

    with requests.Session() as session:
        session.verify = load().ca_bundle or True
        return archs_on_index(address, session)


def _inspect(wheels: str, console: Console) -> list[Inspection]:
    from pathlib import Path

    from rocm_wheels.config import load
    from rocm_wheels.inspect import inspect_wheel
    from rocm_wheels.wheel.find import find_wheels

    if not wheels:
        return []
    below = sorted(Path(wheels).rglob("*.whl")) if Path(wheels).is_dir() else []
    found = []
    for path in below or find_wheels(wheels):
        with console.step(f"reading {path.name}"):
            found.append(inspect_wheel(path, memory_mib=load().memory))
    return found


def _releases(machine: Machine) -> dict[str, list[dict[str, str]]]:
    from rocm_wheels.release import load_matrix, show

    matrix = load_matrix()
    targets = dict.fromkeys(seen.gpu.card.gfx for seen in machine.gpus if seen.gpu.card.names)
    return {
        gfx: [dict(zip(show.OFFERS, row, strict=True)) for row in show.offer_rows(offers)]
        for gfx in targets
        for offers in show.for_gpu(matrix, gfx, matrix.releases).values()
        if offers
    }


def _print(machine: Machine) -> None:
    from rocm_wheels.inspect.machine import CARDS, card_rows
    from rocm_wheels.inspect.table import answer_rows

    place = "in a container" if machine.container else "on this machine"
    print(f"driver: {machine.driver or f'no amdgpu {place}'}")
    for note in machine.notes:
        print(f"note: {note}; it decides which cards programs see, or as what")
    if not machine.gpus:
        print(f"no AMD GPU {place}")
        return
    print_table(CARDS, card_rows(machine))
    for seen in machine.gpus:
        if seen.wheels:
            rows = [(name, *next(answer_rows((said,)))[1:]) for name, said in seen.wheels]
            print_table(("wheel", "answer", "set", "why"), rows, title=f"Wheels on {seen.gpu.pci} {seen.gpu.gfx}")
        if seen.indexed:
            rows = [(name, said.kind, said.variable, said.why) for name, said in seen.indexed]
            print_table(("on the index", "answer", "set", "why"), rows, title=f"For {seen.gpu.pci} {seen.gpu.gfx}")
