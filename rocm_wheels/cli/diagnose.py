"""Explaining logs of failed steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import exit_codes, print_json

if TYPE_CHECKING:
    from rocm_wheels.diagnose import Diagnosis


@task(help={"log": "log, directory of logs (*.log) or quoted pattern; '-' is standard input", **JSON})
def diagnose(_: Context, log: str, json: bool = False) -> None:
    """Find the first real error of a log, its cause and what mends it.

    Example: invoke diagnose build.log, or: make 2>&1 | invoke diagnose -
    """
    from rocm_wheels.diagnose import diagnose_log, diagnose_text, find_logs

    with exit_codes(as_json=json):
        if log == "-":
            found = [("standard input", diagnose_text(sys.stdin.read()))]
        else:
            found = [(str(path), diagnose_log(path)) for path in find_logs(log)]
        if json:
            print_json([{"log": name, **diagnosis.as_dict()} for name, diagnosis in found])
            return
        for name, diagnosis in found:
            _print(name, diagnosis)


def _print(name: str, diagnosis: Diagnosis) -> None:
    """One log's diagnosis: the cause first, then the evidence."""
    print(f"{name}:")
    for finding in diagnosis.findings[:3]:
        note = "" if finding.stops else "beside that: " if diagnosis.line else "nothing failed, but: "
        print(f"  {note}{finding.fault.title}  [{finding.fault.id}, line {finding.line}]")
        print(f"    {finding.text[:200]}")
        print(f"    cause: {finding.cause}")
        print(f"    → {finding.remedy}")
        print(f"    see {' '.join(finding.fault.links[:2])}")
    if not diagnosis.known:
        print("  no known fault" + (f"; the first real error is in line {diagnosis.line}:" if diagnosis.line else ""))
    elif diagnosis.earlier_error:
        print(f"  an earlier error, in line {diagnosis.line}, that the catalogue does not know:")
    if not diagnosis.known or diagnosis.earlier_error:
        print("\n".join(f"    {line[:300]}" for line in diagnosis.excerpt.splitlines()))
