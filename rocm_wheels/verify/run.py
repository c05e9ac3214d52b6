"""Judge wheels: static checks always, install and cold loads for the interpreters given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.errors import BrokenArchive, BrokenWheel
from rocm_wheels.verify.catalogue import explain
from rocm_wheels.verify.load import can_hide, install_and_load
from rocm_wheels.verify.model import Finding, Report, Severity, VerifyOptions, WheelReport
from rocm_wheels.verify.static import run_static
from rocm_wheels.verify.subject import open_subject


def verify(wheels: Sequence[Path], options: VerifyOptions, console: Console) -> Report:
    """The verdict on ``wheels``; raises :class:`UnknownCheck` for an unknown id in ``options.allow``."""
    allowed = frozenset(explain(id_).id for id_ in options.allow)
    return Report(tuple(_one(path, options, allowed, console) for path in wheels))


def _one(path: Path, options: VerifyOptions, allowed: frozenset[str], console: Console) -> WheelReport:
    skipped = ["gpu: no kernel was run, this check needs a GPU"]
    try:
        with console.step(f"verify {path.name}"), open_subject(path, options) as subject:
            profile = subject.profile
            findings = list(run_static(subject))
            if not options.pythons:
                skipped.append("install, load: no interpreter was given (--python)")
            elif not can_hide():
                skipped.append("load: ROCm of this machine was not hidden, no right to make a mount namespace")
            for python in options.pythons:
                findings += install_and_load(subject, python)
    except (BrokenArchive, BrokenWheel) as error:
        check = "archive-broken" if isinstance(error, BrokenArchive) else "metadata"
        findings, profile = [Finding(explain(check), path.name, error.message)], options.profile or "any"
    return WheelReport(
        wheel=path,
        profile=profile,
        findings=tuple(_allow(f, allowed) for f in dict.fromkeys(findings)),
        skipped=tuple(skipped),
    )


def _allow(finding: Finding, allowed: frozenset[str]) -> Finding:
    if finding.check.id not in allowed:
        return finding
    return replace(finding, check=replace(finding.check, severity=min(finding.check.severity, Severity.WARNING)))
