"""The stages in a row, and what the two front ends call. The only module that sees all stages."""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rocm_wheels.build import run
from rocm_wheels.build.container import ContainerEngine
from rocm_wheels.build.engine import find_engine
from rocm_wheels.build.image import ensure_image, prune_images
from rocm_wheels.build.plan import BuildPlan, plan_build
from rocm_wheels.config import Settings
from rocm_wheels.console import Console, print_json, print_table
from rocm_wheels.errors import UsageError, WheelRejected, nearest
from rocm_wheels.gpu import parse_archs
from rocm_wheels.publish import install_back, publish
from rocm_wheels.publish.consume import hashes, lock
from rocm_wheels.publish.install import Tool
from rocm_wheels.release import load_matrix
from rocm_wheels.repair import MODES, RepairOptions, RepairPlan, apply_plan, plan_repair
from rocm_wheels.verify import PROFILES, Report, Severity, VerifyOptions, explain
from rocm_wheels.verify import verify as judge
from rocm_wheels.wheel.find import find_wheels

TOOLS: tuple[Tool, ...] = get_args(Tool)


def show_releases(*, as_json: bool) -> None:
    """Print the matrix."""
    matrix = load_matrix()
    if as_json:
        print_json([dataclasses.asdict(r) for r in matrix.releases])
        return
    rows = []
    for r in matrix.releases:
        images = ", ".join(f"{i} (ROCm {matrix.images[i].rocm})" for i in r.images)
        rows.append((r.name, images, " ".join(r.pythons), " ".join(r.archs)))
    print_table(("release", "image", "python", "default archs"), rows)


def make_image(name: str, settings: Settings, *, prune: bool) -> None:
    """Have builder image ``name`` ready, or remove images that no row names any more."""
    console = Console()
    images = load_matrix().images
    if name not in images:
        raise UsageError(f"no builder image is called {name!r}", remedy=nearest(name, images))
    with find_engine(settings.engine, console=console, settings=settings) as engine:
        if not prune:
            print(ensure_image(images[name], engine=engine, settings=settings, console=console).tag)
        elif isinstance(engine, ContainerEngine):
            print_table(
                ("removed",), [(tag,) for tag in prune_images(tuple(images.values()), engine=engine, console=console)]
            )


def build(pythons: Sequence[str], settings: Settings, options: argparse.Namespace) -> None:
    """Build for ``pythons``, or for all that the release and image share when none is named; print what came out."""
    console = Console(quiet=options.json)
    plans = plan_builds(pythons, settings, until=options.until, version=options.wheel_version)
    if options.dry_run:
        results = [plan.as_dict() for plan in plans]
        if not options.json:
            for fact in results:
                print_table(("plan", ""), [(k, " ".join(v) if isinstance(v, list) else v) for k, v in fact.items()])
            return
    else:
        built = run.build(plans, settings=settings, console=console, fresh=options.fresh)
        results = [{**b.plan.as_dict(), "wheel": str(b.wheel or "")} for b in built]
    if options.json:
        print_json(results)
    else:
        columns = ("release", "python", "archs", "result")
        print_table(columns, [(*_names(b.plan), str(b.wheel or f"{b.plan.until} passed")) for b in built])


def _names(plan: BuildPlan) -> tuple[str, str, str]:
    return plan.release.name, plan.python, ";".join(plan.archs)


def plan_builds(pythons: Sequence[str], settings: Settings, *, until: str, version: str = "") -> list[BuildPlan]:
    """A plan per Python; all that release and image share when none is named."""
    matrix = load_matrix()
    release = matrix.release(settings.release)
    image = matrix.image(settings.image, release)
    wanted = pythons or [p for p in release.pythons if p in image.pythons]
    return [plan_build(matrix, settings, python, until=until, version=version) for python in wanted]


def repair_options(
    mode: str,
    arch: str,
    lib_dirs: Sequence[str],
    exclude: Sequence[str],
    absolute: Sequence[str],
    *,
    plat: str,
    keep_stack: bool,
) -> RepairOptions:
    """Options of a command line, checked; raises :class:`UsageError` and :class:`UnknownArch`."""
    known = next((m for m in MODES if m == mode), None)
    if known is None:
        raise UsageError(f"there is no repair mode {mode!r}", remedy=nearest(mode, MODES))
    return RepairOptions(
        mode=known,
        archs=parse_archs(arch) if arch else (),
        lib_dirs=tuple(Path(d) for d in lib_dirs),
        exclude=tuple(exclude),
        absolute=tuple(absolute),
        plat=plat,
        keep_stack=keep_stack,
    )


def repair(wheel: str, options: RepairOptions, dest: str, *, dry_run: bool, as_json: bool) -> None:
    """Repair the wheels that ``wheel`` means into ``dest``, or print the plans."""
    console = Console(quiet=as_json)
    plans = []
    for path in find_wheels(wheel):
        with console.step(f"plan {path.name}"):
            plans.append(plan_repair(path, options))
    if not dry_run:
        for plan in plans:
            apply_plan(plan, Path(dest), console)
    if as_json:
        print_json([plan.as_dict() for plan in plans])
        return
    for plan in plans:
        _print_repair(plan, dest)


def _print_repair(plan: RepairPlan, dest: str) -> None:
    changes = [(e.member, "; ".join(e.reasons)) for e in plan.elves if e.edit]
    grafted = [(g.member, f"from {g.source} ({g.package} {g.version})") for g in plan.grafts]
    print_table(("file", "change"), [*changes, *grafted], title=f"{dest}/{plan.name}")
    for note in plan.notes:
        print(f"note: {note}")
    if plan.measured.blockers:
        print(f"an older platform is forbidden: {plan.measured.blockers[0]}")


def verify_options(arch: str, profile: str, pythons: Sequence[str], allow: Sequence[str]) -> VerifyOptions:
    """Options of a command line, checked; raises :class:`UsageError` and :class:`UnknownArch`."""
    known = next((p for p in PROFILES if p == profile), None)
    if profile and known is None:
        raise UsageError(f"there is no profile {profile!r}", remedy=nearest(profile, PROFILES))
    archs = parse_archs(arch) if arch else ()
    return VerifyOptions(profile=known, archs=archs, pythons=tuple(pythons), allow=tuple(allow))


def explain_check(id_: str) -> None:
    """Print one entry of the catalogue of checks."""
    check = explain(id_)
    rows = (("severity", check.severity.name.lower()), ("checks", check.what), ("because", check.why))
    print_table((check.id, check.group), [*rows, ("remedy", check.remedy)])


def verify(wheel: str, options: VerifyOptions, *, as_json: bool) -> None:
    """Judge the wheels that ``wheel`` means and print the report; raises :class:`WheelRejected` on errors."""
    report = judge(find_wheels(wheel), options, Console(quiet=as_json))
    if as_json:
        print_json(report.as_dict())
        if not report.ok:
            raise SystemExit(WheelRejected.exit_code)
        return
    _print_report(report)
    _refuse(report)


def _print_report(report: Report) -> None:
    for each in report.wheels:
        rows = [(f.check.severity.name.lower(), f.check.id, f.member, f.evidence) for f in each.findings]
        print_table(
            ("severity", "check", "file", "evidence"), rows, title=f"{each.wheel.name} (profile {each.profile})"
        )
        for text in each.skipped:
            print(f"skipped {text}")


def _refuse(report: Report) -> None:
    if not report.ok:
        bad = {f.check.id for w in report.wheels for f in w.findings if f.check.severity is Severity.ERROR}
        raise WheelRejected(
            f"{sum(w.worst is Severity.ERROR for w in report.wheels)} of {len(report.wheels)} wheels have errors: "
            f"{', '.join(sorted(bad))}",
            remedy="invoke explain ID says why and what mends it",
        )


def publish_wheels(wheel: str, settings: Settings, *, dry_run: bool, as_json: bool) -> None:
    """Verify the wheels that ``wheel`` means, bring them to ``settings.index`` and print where they are."""
    console = Console(quiet=as_json)
    report = publish(
        find_wheels(wheel),
        settings.index,
        settings=settings,
        console=console,
        dry_run=dry_run,
        verify=lambda paths: _refuse(judge(paths, VerifyOptions(), console)),
    )
    if as_json:
        print_json(report.as_dict())
    else:
        print_table(
            ("requirement", "file"), [(w.requirement, w.filename) for w in report.wheels], title=report.index_url
        )


def install_from(index_url: str, requirement: str, python: str, tool: str) -> None:
    """Install ``requirement`` from one index into a fresh environment, by the hashes that it resolves to."""
    known = next((t for t in TOOLS if t == tool), None)
    if known is None:
        raise UsageError(f"no installer is called {tool!r}", remedy=nearest(tool, TOOLS))
    console = Console()
    accepted = hashes(lock(index_url, [requirement], python, console=console))
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-install-") as folder:
        result = install_back(
            index_url,
            requirement,
            python,
            tool=known,
            hashes=accepted,
            environment=Path(folder) / "venv",
            console=console,
        )
    print_table(("installed", "version"), sorted(result.installed.items()), title=f"{tool} on {python}")
