"""The matrix of releases."""

from __future__ import annotations

import dataclasses

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import exit_codes, print_json, print_table


@task(
    help={
        "release": "show every fact about one release, with its source",
        "rocm": "only releases for this ROCm",
        "python": "only releases for this Python",
        "gpu": "what a GPU can run: a product or a target, such as 'RX 6600' or gfx1032",
        **JSON,
    }
)
def releases(
    _: Context, release: str = "", rocm: str = "", python: str = "", gpu: str = "", json: bool = False
) -> None:
    """Show what is known of each release, and what a GPU can run.

    Example: invoke releases --gpu 'RX 6600' --python 3.12
    """
    from rocm_wheels.release import load_matrix, show

    with exit_codes(as_json=json):
        matrix = load_matrix()
        chosen = (matrix.release(release),) if release else show.select(matrix, rocm=rocm, python=python)
        if gpu:
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
