"""Builder images, and what the build sessions of noxfile.py call."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.console import Console, exit_codes, print_json, print_table

if TYPE_CHECKING:
    from rocm_wheels.build.plan import BuildPlan
    from rocm_wheels.config import Settings


@task(help={"name": "builder image", "prune": "remove our older images instead"})
def image(_: Context, name: str = "debian-trixie", prune: bool = False) -> None:
    """Make a builder image, or remove outdated ones.

    Example: invoke image --name debian-trixie
    """
    from rocm_wheels.config import load

    with exit_codes():
        _image(name, load(), prune=prune)


def _image(name: str, settings: Settings, *, prune: bool) -> None:
    from rocm_wheels.build.container import ContainerEngine
    from rocm_wheels.build.engine import find_engine
    from rocm_wheels.build.image import ensure_image, prune_images
    from rocm_wheels.release import load_matrix

    console, matrix = Console(), load_matrix()
    chosen = matrix.image(name)
    with find_engine(settings.engine, console=console, settings=settings) as engine:
        if not prune:
            print(ensure_image(chosen, engine=engine, settings=settings, console=console).tag)
        elif isinstance(engine, ContainerEngine):
            removed = prune_images(tuple(matrix.images.values()), engine=engine, console=console)
            print_table(("removed",), [(tag,) for tag in removed])


def build(pythons: Sequence[str], settings: Settings, options: argparse.Namespace) -> None:
    """Build for ``pythons``, or for all that the release and image share when none is named; print what came out."""
    from rocm_wheels.build import run
    from rocm_wheels.build.plan import plan_builds

    plans = plan_builds(pythons, settings, until=options.until, version=options.wheel_version)
    if options.dry_run:
        _print_plans(plans, as_json=options.json)
        return
    built = run.build(plans, settings=settings, console=Console(quiet=options.json), fresh=options.fresh)
    if options.json:
        print_json([{**b.plan.as_dict(), "wheel": str(b.wheel or "")} for b in built])
        return
    rows = [
        (b.plan.release.name, b.plan.python, ";".join(b.plan.archs), str(b.wheel or f"{b.plan.until} passed"))
        for b in built
    ]
    print_table(("release", "python", "archs", "result"), rows)


def _print_plans(plans: Sequence[BuildPlan], *, as_json: bool) -> None:
    facts = [plan.as_dict() for plan in plans]
    if as_json:
        print_json(facts)
        return
    for each in facts:
        print_table(("plan", ""), [(k, " ".join(v) if isinstance(v, list) else v) for k, v in each.items()])
