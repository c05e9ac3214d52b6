"""Judging wheels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON, WHEEL
from rocm_wheels.console import Console, exit_codes, print_json, print_table
from rocm_wheels.errors import UsageError, WheelRejected, nearest

if TYPE_CHECKING:
    from rocm_wheels.verify import Report, VerifyOptions
    from rocm_wheels.verify.model import Finding


@task(
    iterable=["python", "allow", "only"],
    help={
        **WHEEL,
        "arch": "GPU targets that it must serve, separated by ';'",
        "profile": "torch, torch-dependant, tensorflow, jax, rocm-base or any; default: by name",
        "python": "interpreter to install and load it with (repeatable)",
        "allow": "check whose findings do not count as errors (repeatable)",
        "only": "check or group of checks to report, nothing else (repeatable)",
        "commit": "commit that the package must name",
        **JSON,
    },
)
def verify(
    _: Context,
    wheel: str,
    arch: str = "",
    profile: str = "",
    python: list[str] | None = None,
    allow: list[str] | None = None,
    only: list[str] | None = None,
    commit: str = "",
    json: bool = False,
) -> None:
    """Judge wheels, each and as a set; exit code 80 on errors.

    Example: invoke verify dist/fat --arch gfx1030 --python python3.13
    """
    from rocm_wheels import verify as judge
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes(as_json=json):
        options = _options(arch, profile, python=python or (), allow=allow or (), only=only or (), commit=commit)
        report = judge.verify(find_wheels(wheel), options, Console(quiet=json))
        if json:
            print_json(report.as_dict())
            if not report.ok:
                raise SystemExit(WheelRejected.exit_code)
            return
        _print_report(report)
        refuse(report)


@task(help={"check": "id of a check, as verify prints it"})
def explain(_: Context, check: str) -> None:
    """Say what a check of verify looks at, why, and what mends it.

    Example: invoke explain exec-stack
    """
    from rocm_wheels import verify as judge

    with exit_codes():
        found = judge.explain(check)
        rows = (("severity", found.severity.name.lower()), ("checks", found.what), ("because", found.why))
        print_table((found.id, found.group), [*rows, ("remedy", found.remedy)])


def _options(
    arch: str, profile: str, *, python: Sequence[str], allow: Sequence[str], only: Sequence[str], commit: str
) -> VerifyOptions:
    """Options of a command line, checked; raises :class:`UsageError` and :class:`UnknownArch`."""
    from rocm_wheels.gpu import parse_archs
    from rocm_wheels.verify import PROFILES, VerifyOptions

    known = next((p for p in PROFILES if p == profile), None)
    if profile and known is None:
        raise UsageError(f"there is no profile {profile!r}", remedy=nearest(profile, PROFILES))
    archs = parse_archs(arch) if arch else ()
    return VerifyOptions(
        profile=known, archs=archs, pythons=tuple(python), allow=tuple(allow), only=tuple(only), commit=commit
    )


def _print_report(report: Report) -> None:
    for each in report.wheels:
        _print_findings(each.findings, f"{each.wheel.name} (profile {each.profile})")
        for text in each.skipped:
            print(f"skipped {text}")
    if report.set_findings:
        _print_findings(report.set_findings, "the set")


def _print_findings(findings: Sequence[Finding], title: str) -> None:
    """One row for the same evidence in many files; `--json` has them all."""
    files: dict[tuple[str, str, str], list[str]] = {}
    for f in findings:
        files.setdefault((f.check.severity.name.lower(), f.check.id, f.evidence), []).append(f.member)
    rows = [
        (severity, check, members[0] + (f" and {len(members) - 1} more" if members[1:] else ""), evidence)
        for (severity, check, evidence), members in files.items()
    ]
    if rows:
        print_table(("severity", "check", "file", "evidence"), rows, title=title)
    else:
        print(f"{title}: no findings")


def refuse(report: Report) -> None:
    """Raise :class:`WheelRejected` if ``report`` has errors."""
    from rocm_wheels.verify import Severity

    if not report.ok:
        bad = {f.check.id for f in report.findings if f.check.severity is Severity.ERROR}
        wheels = sum(w.worst is Severity.ERROR for w in report.wheels)
        raise WheelRejected(
            f"{wheels} of {len(report.wheels)} wheels{'' if wheels else ', but the set,'} have errors: "
            f"{', '.join(sorted(bad))}",
            remedy="invoke explain ID says why and what mends it",
        )
