"""The stages in a row, and what the two front ends call. The only module that sees all stages."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rocm_wheels.build import commands, run
from rocm_wheels.build.container import ContainerEngine
from rocm_wheels.build.engine import Engine, Mount, find_engine
from rocm_wheels.build.image import ensure_image, prune_images
from rocm_wheels.build.plan import BuildPlan, plan_build
from rocm_wheels.config import PROJECT_ROOT, Settings
from rocm_wheels.console import Console, print_json, print_table
from rocm_wheels.errors import StageFailed, UsageError, WheelRejected, nearest
from rocm_wheels.gpu import parse_archs
from rocm_wheels.publish import install_back, publish, why_not_installable
from rocm_wheels.publish.consume import hashes, lock
from rocm_wheels.publish.install import Tool
from rocm_wheels.publish.pypiserver import running_pypiserver
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
            print_table(("removed",), [(tag,) for tag in prune_images(images.values(), engine=engine, console=console)])


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


class Job:
    """One run of the whole pipeline: everything after the build runs where the wheels belong, in the image."""

    def __init__(self, engine: Engine, plan: BuildPlan, dist: Path, console: Console) -> None:
        self.engine = engine
        self.plan = plan
        self.dist = dist
        self.console = console

    def task(self, *words: str) -> None:
        """Run a task of this project inside the image, with ``dist_dir`` at /dist; raises :class:`StageFailed`."""
        lines: list[str] = []
        code = self.engine.run(
            self.plan.image_tag,
            commands.project_task(*words),
            mounts=(Mount(self.dist, "/dist"), Mount(PROJECT_ROOT, commands.PROJECT, read_only=True)),
            env={**commands.task_environment(), "HOME": "/tmp"},
            workdir="/dist",
            host_network=True,
            may_mount=True,
            on_line=lines.append,
        )
        if code:
            raise StageFailed(f"{words[0]} for Python {self.plan.python} ended with {code}:\n" + "\n".join(lines[-30:]))


def quickstart(settings: Settings) -> None:
    """The main job on the embedded default: build for every Python, repair both ways, verify, publish, install back."""
    console = Console()
    dist = Path(settings.dist_dir).resolve()
    plans = plan_builds((), settings, until="wheel")
    built = run.build(plans, settings=settings, console=console)
    rows: list[tuple[str, ...]] = []
    with find_engine(settings.engine, console=console, settings=settings) as engine:
        for mode in ("thin", "fat"):
            folder = dist / mode
            shutil.rmtree(folder, ignore_errors=True)
            for result in built:
                assert result.wheel is not None
                _repair_and_verify(Job(engine, result.plan, dist, console), result.wheel.name, mode)
            rows += _hand_out(folder, mode, plans, engine, settings, console)
    print_table(("mode", "python", "tool", "where", "result"), rows, title=str(dist))


def _repair_and_verify(job: Job, name: str, mode: str) -> None:
    plan = job.plan
    with job.console.step(f"repair and verify {name} ({mode})"):
        archs = ";".join(plan.archs)
        before = set((job.dist / mode).glob("*.whl"))
        job.task("repair", f"/dist/built/{name}", "--mode", mode, "--arch", archs, "--dest", f"/dist/{mode}")
        (wheel,) = set((job.dist / mode).glob("*.whl")) - before
        python = commands.build_python(plan)
        job.task("verify", f"/dist/{mode}/{wheel.name}", "--arch", archs, "--python", python)


def _hand_out(
    folder: Path, mode: str, plans: Sequence[BuildPlan], engine: Engine, settings: Settings, console: Console
) -> list[tuple[str, ...]]:
    """Publish the wheels of ``folder`` to a live index and install each back by pip and uv."""
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as storage:
        with running_pypiserver(Path(storage)) as url:
            report = publish(find_wheels(str(folder)), url, settings=settings, console=console)
            for plan in plans:
                wheel = _wheel_for(folder, plan)
                requirement = f"{plan.release.distribution}=={plan.version}"
                for tool in TOOLS:
                    where = _install_somewhere(
                        report.index_url, requirement, wheel, tool, Job(engine, plan, folder.parent, console)
                    )
                    rows.append((mode, plan.python, tool, where, wheel.name))
    return rows


def _wheel_for(folder: Path, plan: BuildPlan) -> Path:
    tag = f"cp{plan.python.replace('.', '')}"
    return next(w for w in find_wheels(str(folder)) if f"-{tag}-" in w.name)


def _host_python(version: str) -> str | None:
    """The path of a Python of this version that runs here; a name on PATH may be a shim that leads nowhere."""
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _install_somewhere(index_url: str, requirement: str, wheel: Path, tool: Tool, job: Job) -> str:
    """Install on this machine if it has the Python and may take the wheel, else in the image; says where and why."""
    python = _host_python(job.plan.python)
    reason = why_not_installable(wheel, python) if python else f"no python{job.plan.python} here"
    if python and reason is None:
        install_from(index_url, requirement, python, tool)
        return "this machine"
    job.task("install-back", index_url, requirement, commands.build_python(job.plan), "--tool", tool)
    return f"in the image ({reason})"
