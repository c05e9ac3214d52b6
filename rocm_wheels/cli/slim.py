"""Wheels for some GPUs out of wheels for many."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON, WHEEL
from rocm_wheels.console import Console, exit_codes, print_json, print_table

if TYPE_CHECKING:
    from rocm_wheels.slim import SlimPlan


@task(
    help={
        **WHEEL,
        "arch": "GPU targets that stay, separated by ';'",
        "dest": "directory for the result",
        "build-tag": "mark the result by a build tag and keep the version",
        "dry-run": "print the plan, write nothing",
        **JSON,
    }
)
def slim(
    _: Context,
    wheel: str,
    arch: str,
    dest: str = "dist/slim",
    build_tag: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Keep the code and data of some GPUs in wheels for many.

    Example: invoke slim jax_rocm7_pjrt-0.12.0-py3-none-manylinux_2_27_x86_64.whl gfx1030
    """
    from rocm_wheels.gpu import parse_archs
    from rocm_wheels.slim import slim as make
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes(as_json=json):
        archs, console = parse_archs(arch), Console(quiet=json)
        plans = [
            make(path, archs, Path(dest), console, build=build_tag, dry_run=dry_run) for path in find_wheels(wheel)
        ]
        if json:
            print_json([plan.as_dict() for plan in plans])
            return
        for plan in plans:
            _print_plan(plan, dest)


def _print_plan(plan: SlimPlan, dest: str) -> None:
    from rocm_wheels.publish.pages import human_size

    rows = [
        (each.member, " ".join(each.kept), " ".join(each.removed), human_size(each.removed_size))
        for each in plan.libraries
    ]
    print_table(("library", "kept", "removed", "bytes removed"), rows, title=f"{dest}/{plan.name}")
    if plan.data:
        print(f"{len(plan.data)} data files of other GPUs removed, {human_size(sum(size for _, size in plan.data))}")
