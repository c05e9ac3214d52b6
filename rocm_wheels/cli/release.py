"""The matrix of releases."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import Console, exit_codes, print_json, print_table

if TYPE_CHECKING:
    from rocm_wheels.release import Release


@task(
    help={
        "release": "show every fact about one release, with its source",
        "rocm": "only releases for this ROCm",
        "python": "only releases for this Python",
        "check": "compare with the wheels on the package index; exit code 27 if something differs",
        "gpu": "what a GPU can run: a product or a target, such as 'RX 6600' or gfx1032",
        **JSON,
    }
)
def releases(
    _: Context,
    release: str = "",
    rocm: str = "",
    python: str = "",
    gpu: str = "",
    check: bool = False,
    json: bool = False,
) -> None:
    """Show what is known of each release, and what a GPU can run.

    Example: invoke releases --gpu 'RX 6600' --python 3.12
    """
    from rocm_wheels.release import load_matrix, show

    with exit_codes(as_json=json):
        matrix = load_matrix()
        chosen = (matrix.release(release),) if release else show.select(matrix, rocm=rocm, python=python)
        if check:
            _check(chosen, as_json=json)
        elif gpu:
            found = show.for_gpu(matrix, gpu, chosen, rocm=rocm, python=python)
            if json:
                print_json([dataclasses.asdict(offer) for offers in found.values() for offer in offers])
                return
            for card, offers in found.items():
                title = f"{card.gfx}: {', '.join(card.names) or 'no product known'}"
                print_table(show.OFFERS, show.offer_rows(offers), title=title)
        elif json:
            print_json([show.as_dict(r) for r in chosen])
        elif release:
            print_table(("fact", "value", "source"), show.details(chosen[0]), title=chosen[0].name)
        else:
            print_table(show.SUMMARY, show.summary(matrix, chosen))
            if not (rocm or python):
                print_table(show.OTHERS, show.others(matrix), title="\nOnly repaired and judged")


def _check(chosen: Sequence[Release], *, as_json: bool) -> None:
    """Print what the index says of each cell; raises :class:`DataDrifted` if something differs."""
    from rocm_wheels.errors import DataDrifted
    from rocm_wheels.release.drift import check

    found = check(chosen, console=Console(quiet=as_json))
    differing = [d for d in found if d.state == "differs"]
    if as_json:
        print_json([dataclasses.asdict(d) for d in found])
    else:
        rows = [(d.release, d.column, d.ours, d.found, d.state) for d in found]
        print_table(("release", "fact", "here", "on the index", "state"), rows)
    if differing and as_json:
        raise SystemExit(DataDrifted.exit_code)
    if differing:
        raise DataDrifted(
            f"{len(differing)} facts are not what the index says: "
            + ", ".join(f"{d.column} of {d.release}" for d in differing),
            remedy="correct them in rocm_wheels/release/data",
        )
