"""The matrix of releases."""

from __future__ import annotations

import dataclasses

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import exit_codes, print_json, print_table


@task(help=JSON)
def releases(_: Context, json: bool = False) -> None:
    """Show what can be built, in which image, for which Python and GPU.

    Example: invoke releases
    """
    from rocm_wheels.release import load_matrix

    with exit_codes(as_json=json):
        matrix = load_matrix()
        if json:
            print_json([dataclasses.asdict(r) for r in matrix.releases])
            return
        rows = []
        for r in matrix.releases:
            images = ", ".join(f"{i} (ROCm {matrix.images[i].rocm})" for i in r.images)
            rows.append((r.name, images, " ".join(r.pythons), " ".join(r.archs)))
        print_table(("release", "image", "python", "default archs"), rows)
