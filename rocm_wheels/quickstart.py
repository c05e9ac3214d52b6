"""The main job in one go: build for every Python, repair both ways, verify, publish, install back."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rocm_wheels.build import commands, run
from rocm_wheels.build.engine import Engine, Mount, find_engine
from rocm_wheels.build.plan import BuildPlan, plan_builds
from rocm_wheels.build.stages import write_atomically
from rocm_wheels.cli.consume import install_from
from rocm_wheels.config import PROJECT_ROOT, Settings
from rocm_wheels.console import Console, print_table
from rocm_wheels.errors import StageFailed
from rocm_wheels.publish import publish, why_not_installable
from rocm_wheels.publish.install import Tool
from rocm_wheels.publish.pypiserver import running_pypiserver
from rocm_wheels.source.fetch import sha256

MODES = ("thin", "fat")
TOOLS: tuple[Tool, ...] = get_args(Tool)


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
    """Carry the embedded default from source to installed wheel; what an earlier run finished is not done again.

    Raises the error of the first step that fails.
    """
    console = Console()
    dist = Path(settings.dist_dir).resolve()
    plans = plan_builds((), settings, until="wheel")
    built = [b.wheel for b in run.build(plans, settings=settings, console=console) if b.wheel]
    rows: list[tuple[str, ...]] = []
    with find_engine(settings.engine, console=console, settings=settings) as engine:
        jobs = [Job(engine, plan, dist, console) for plan in plans]
        for mode in MODES:
            wheels = [_repaired(job, wheel, mode) for job, wheel in zip(jobs, built, strict=True)]
            rows += _hand_out(mode, jobs, wheels, settings)
    print_table(("mode", "python", "tool", "where", "result"), rows, title=str(dist))


def _repaired(job: Job, built: Path, mode: str) -> Path:
    """The wheel that ``built`` becomes by repair, verified; the one of an earlier run if nothing changed since."""
    folder = job.dist / mode
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / f".{built.stem}.json"
    inputs = [sha256(built), job.plan.image_tag, *job.plan.archs, _code_digest()]
    try:
        before = json.loads(stamp.read_text("utf-8"))
        if before["inputs"] == inputs and sha256(folder / before["wheel"]) == before["sha256"]:
            job.console.line(f"• repair and verify {built.name} ({mode}): done before")
            return folder / str(before["wheel"])
    except (OSError, ValueError, KeyError):
        pass  # never done, or half done: do it
    with job.console.step(f"repair and verify {built.name} ({mode})"):
        wheel = _repair_and_verify(job, built.name, mode)
    facts = {"inputs": inputs, "wheel": wheel.name, "sha256": sha256(wheel)}
    write_atomically(stamp, json.dumps(facts, sort_keys=True) + "\n")
    return wheel


def _repair_and_verify(job: Job, name: str, mode: str) -> Path:
    folder = job.dist / mode
    pattern = name.rpartition("-")[0] + "-*.whl"
    for old in folder.glob(pattern):
        old.unlink()
    archs = ";".join(job.plan.archs)
    job.task("repair", f"/dist/built/{name}", "--mode", mode, "--arch", archs, "--dest", f"/dist/{mode}")
    (wheel,) = folder.glob(pattern)
    python = commands.build_python(job.plan)
    job.task("verify", f"/dist/{mode}/{wheel.name}", "--arch", archs, "--python", python)
    return wheel


def _code_digest() -> str:
    """Hash of this package: other code may repair or judge otherwise."""
    files = sorted((PROJECT_ROOT / "rocm_wheels").rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _hand_out(mode: str, jobs: Sequence[Job], wheels: Sequence[Path], settings: Settings) -> list[tuple[str, ...]]:
    """Publish the wheels to a live index and install each back by pip and uv."""
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as storage, running_pypiserver(Path(storage)) as url:
        report = publish(wheels, url, settings=settings, console=jobs[0].console)
        for job, wheel in zip(jobs, wheels, strict=True):
            requirement = f"{job.plan.release.distribution}=={job.plan.version}"
            for tool in TOOLS:
                where = _install_somewhere(report.index_url, requirement, wheel, tool, job)
                rows.append((mode, job.plan.python, tool, where, wheel.name))
    return rows


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
    with job.console.step(f"install {requirement} with {tool} for Python {job.plan.python} in the image"):
        job.task("install-back", index_url, requirement, commands.build_python(job.plan), "--tool", tool)
    return f"in the image ({reason})"
