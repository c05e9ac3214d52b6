"""The generated documentation."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.console import exit_codes


@task
def docs(_: Context) -> None:
    """Write docs/reference.md and docs/troubleshooting.md anew.

    Example: invoke docs
    """
    from rocm_wheels.reference import write

    with exit_codes():
        for path in write():
            print(path)
