"""What would fail later, now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import Console, exit_codes, print_json, print_table

if TYPE_CHECKING:
    from rocm_wheels.doctor import Result


@task(help={"fix": "make what is missing where that is safe: directories, packages", **JSON})
def doctor(_: Context, fix: bool = False, json: bool = False) -> None:
    """Say what would make a build, repair or upload fail; exit code 17 if one would.

    Example: invoke doctor --fix
    """
    from rocm_wheels import config
    from rocm_wheels.doctor import CHECKS, State, examine, mend
    from rocm_wheels.errors import DoctorFailed

    with exit_codes(as_json=json):
        settings = config.load()
        found = examine(settings)
        if fix and (mended := mend(found, Console(quiet=json))):
            again = examine(settings, {name: CHECKS[name] for name in mended})
            found = tuple(r for r in found if r.check not in mended) + again
        failed = sum(result.state is State.FAILED for result in found)
        if json:
            print_json([result.as_dict() for result in found])
            if failed:
                raise SystemExit(DoctorFailed.exit_code)
            return
        print_table(("", "check", "found"), [(r.state, r.check, _text(r)) for r in found])
        if failed:
            raise DoctorFailed(
                f"{failed} things would fail", remedy="each line says what mends it; --fix does the safe"
            )


def _text(result: Result) -> str:
    return f"{result.found}\n→ {result.remedy}" if result.remedy else result.found
