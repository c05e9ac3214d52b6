"""Settings of this run."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import exit_codes, print_json, print_table


@task(help=JSON)
def config(_: Context, json: bool = False) -> None:
    """Show each setting, its value and where it came from.

    Example: invoke config
    """
    from rocm_wheels.config import explain

    with exit_codes(as_json=json):
        found = explain()
        if json:
            print_json([vars(s) for s in found])
        else:
            print_table(("setting", "value", "from", "meaning"), [(s.name, s.value, s.origin, s.help) for s in found])
