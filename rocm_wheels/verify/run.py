"""Judge wheels: static checks always; install, loads and kernels for the interpreters given; then the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.errors import BrokenArchive, BrokenWheel
from rocm_wheels.verify.catalogue import catalogue, explain, finding, select
from rocm_wheels.verify.install import install_and_load
from rocm_wheels.verify.load import can_hide
from rocm_wheels.verify.model import Finding, Report, Severity, VerifyOptions, WheelReport
from rocm_wheels.verify.sets import check_set
from rocm_wheels.verify.static import run_static
from rocm_wheels.verify.subject import Subject, open_subject, with_companions


def verify(wheels: Sequence[Path], options: VerifyOptions, console: Console) -> Report:
    """The verdict on ``wheels`` and on the set that they make.

    Raises :class:`UnknownCheck` for an unknown id in ``options.allow`` or ``options.only``.
    """
    verdict = _Verdict(options)
    with ExitStack() as stack:
        subjects: dict[Path, Subject] = {}
        refused: dict[Path, WheelReport] = {}
        for path in wheels:
            try:
                with console.step(f"verify {path.name}"):
                    subjects[path] = stack.enter_context(open_subject(path, options))
            except (BrokenArchive, BrokenWheel) as error:
                check = "archive-broken" if isinstance(error, BrokenArchive) else "metadata"
                refused[path] = WheelReport(
                    wheel=path,
                    profile=options.profile or "any",
                    findings=verdict.on([finding(check, path.name, error.message)]),
                    skipped=("everything else: the wheel cannot be read",),
                )
        joined = with_companions(list(subjects.values()))
        reports = {s.archive.path: _one(s, options, verdict, console) for s in joined}
        of_set = verdict.on(list(check_set(joined)))
    reports |= refused
    return Report(tuple(reports[path] for path in dict.fromkeys(wheels)), of_set, tuple(verdict.let_pass))


class _Verdict:
    """Applies --only and --allow, and remembers which errors an --allow let pass."""

    def __init__(self, options: VerifyOptions) -> None:
        self._allowed = frozenset(explain(id_).id for id_ in options.allow)
        self._only = select(options.only) if options.only else frozenset(catalogue())
        self.let_pass: list[Finding] = []

    def on(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        return tuple(self._one(f) for f in dict.fromkeys(findings) if f.check.id in self._only)

    def _one(self, found: Finding) -> Finding:
        if found.check.id not in self._allowed or found.check.severity < Severity.ERROR:
            return found
        self.let_pass.append(found)
        return replace(found, check=replace(found.check, severity=Severity.WARNING))


def _one(subject: Subject, options: VerifyOptions, verdict: _Verdict, console: Console) -> WheelReport:
    findings = list(run_static(subject))
    skipped = []
    if options.only:
        skipped.append(f"every check but {', '.join(options.only)}: --only")
    if not options.archs:
        skipped.append("coverage of GPU targets: none was asked for (--arch); libraries are compared with each other")
    if not options.pythons:
        skipped.append("install, load, gpu: no interpreter was given (--python)")
    elif not can_hide():
        skipped.append("load: ROCm of this machine was not hidden, no right to make a mount namespace")
    for python in options.pythons:
        with console.step(f"install and load {subject.name} with {python}"):
            more, left_out = install_and_load(subject, python)
        findings += more
        skipped += left_out
    return WheelReport(
        wheel=subject.archive.path,
        profile=subject.profile,
        findings=verdict.on(findings),
        skipped=tuple(dict.fromkeys(skipped)),
    )
