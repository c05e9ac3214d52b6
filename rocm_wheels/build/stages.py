"""The stages of a build, each with a stamp; a run picks up at the first stage that has none.

What a killed stage may have left half-written is removed before it runs again: source files after an unfinished
hipify, CMake's tree after an unfinished configure, setuptools' copies after an unfinished wheel. Objects stay: ninja
rebuilds those that its log does not vouch for.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import source
from rocm_wheels.build import commands, gates
from rocm_wheels.build.canary import run_canary
from rocm_wheels.build.compiler_cache import is_on_this_machine, read_calls
from rocm_wheels.build.cost import known_cost, learn, step_seconds
from rocm_wheels.build.engine import Engine
from rocm_wheels.build.memory import available_memory, oom_kills
from rocm_wheels.build.ninja_log import Counted, Remaining, read_log
from rocm_wheels.build.plan import BuildPlan
from rocm_wheels.build.preflight import check_kernel, version_command, warn_of_windows
from rocm_wheels.build.report import Phase, render
from rocm_wheels.build.toolchain import record_toolchain
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.diagnose import diagnose_text
from rocm_wheels.errors import CompilerKilled, NoSpace, StageFailed

_KILLED = re.compile(r"\bKilled\b|signal 9\b|SIGKILL|out of memory|exit code 137")


@dataclass(frozen=True, kw_only=True)
class Builder:
    """A plan with the engine and settings that carry it out."""

    plan: BuildPlan
    engine: Engine
    settings: Settings
    console: Console

    def run(self) -> None:
        """Run every stage of the plan that has no stamp yet."""
        actions: dict[str, Callable[[], None]] = {
            "fetch": self._fetch,
            "hipify": self._hipify,
            "configure": self._configure,
            "canary": self._canary,
            "compile": self._compile,
            "wheel": self._wheel,
        }
        for directory in ("home", "logs", "stamps", "out"):
            (self.plan.tree / directory).mkdir(parents=True, exist_ok=True)
        self.plan.ccache.mkdir(parents=True, exist_ok=True)
        checked = False
        for stage in self.plan.stages:
            if self.finished(stage):
                self.console.line(f"• {stage}: done before")
                continue
            if stage != "fetch" and not checked:
                record_toolchain(self.plan.tree / commands.TOOLCHAIN, self._quietly)
                checked = True
            with self.console.step(f"{stage} {self.plan.release.name} for Python {self.plan.python}"):
                with self._stamp(stage):
                    actions[stage]()
            self._write_report()

    def finished(self, stage: str) -> bool:
        """Whether ``stage`` ended well in this tree."""
        return self._stamp_path(stage).is_file()

    def log(self, stage: str) -> Path:
        """Where the output of ``stage`` is kept."""
        return self.plan.tree / "logs" / f"{stage}.log"

    def command(self, stage: str, argv: Sequence[str], work: Counted | Remaining | None = None) -> None:
        """Run ``argv`` in the container, its output going to the log of ``stage``; ``work`` tells how far ninja is.

        Raises :class:`CompilerKilled` when memory was the cause and :class:`StageFailed` otherwise.
        """
        killed_before = oom_kills()
        log = self.log(stage)
        with log.open("a", buffering=1, encoding="utf-8") as stream, self.console.progress(stage, 100) as advance:
            shown = 0

            def on_line(line: str) -> None:
                nonlocal shown
                stream.write(line.rstrip("\n") + "\n")
                if work and work.finished(line) and (percent := int(work.done * 100)) > shown:
                    advance(percent - shown)
                    shown = percent

            stream.write(f"$ {' '.join(argv)}\n")
            code = self._in_tree(commands.measured(stage, argv), on_line)
        if code:
            self._fail(stage, argv, code, killed=oom_kills() - killed_before)

    def _in_tree(self, argv: Sequence[str], on_line: Callable[[str], None]) -> int:
        return self.engine.run(
            self.plan.image_tag,
            list(argv),
            mounts=commands.mounts(self.plan),
            env=commands.environment(self.plan),
            workdir=commands.SOURCE,
            host_network=is_on_this_machine(self.plan.remote_cache),
            on_line=on_line,
        )

    def _ninja(self, stage: str, *target: str) -> None:
        """Build ``target`` (everything without one), with fewer jobs each time that memory did not suffice."""
        jobs = self.plan.jobs
        while True:
            work = self._work_left(target)
            options = ["--parallel", str(jobs), *(["--target", *target] if target else [])]
            try:
                self.command(stage, ["cmake", "--build", "build", *options], work)
                return
            except CompilerKilled as error:
                if jobs == 1:
                    raise
                jobs //= 2
                self.console.warn(f"{error.message.splitlines()[0]}; going on with {jobs}")

    def _work_left(self, target: Sequence[str]) -> Counted | Remaining:
        """What tells how far ninja is: by the pending steps where their cost is known, else by their count."""
        cost = known_cost(self.plan.release.cost, self.plan.measured)
        if cost is None:
            return Counted()
        pending: list[str] = []
        self._in_tree(["ninja", "-C", "build", "-n", *target], pending.append)
        return Remaining(pending, step_seconds(cost, len(self.plan.archs)))

    def _quietly(self, argv: Sequence[str], on_line: Callable[[str], None]) -> None:
        """Run ``argv`` in the image alone, its output going to ``on_line`` only."""
        if code := self.engine.run(self.plan.image_tag, list(argv), on_line=on_line):
            raise StageFailed(f"`{' '.join(argv)}` ended with exit code {code} in {self.plan.image_tag}")

    def _fail(self, stage: str, argv: Sequence[str], code: int, *, killed: int) -> None:
        text = self.log(stage).read_text("utf-8", "replace")
        found = diagnose_text(text.rsplit("\n$ ", 1)[-1])
        excerpt = found.excerpt
        if killed or code == 137 or _KILLED.search(excerpt):
            count = (
                f"the kernel killed {killed} for memory" if killed else "a compiler was killed, most likely for memory"
            )
            raise CompilerKilled(
                f"{stage}: {count} with {available_memory() / 1e9:.1f} GB free now\n{excerpt}",
                remedy="a single compiler is too large for this machine: close what else runs, or add memory or swap",
            )
        remedy = f"the whole log is {self.log(stage)}; run again to resume at {stage}"
        if found.known:
            cause = found.findings[0]
            excerpt += f"\n{cause.fault.title}: {cause.cause}"
            remedy = f"{cause.remedy}; {remedy}"
        raise StageFailed(f"{stage} failed with exit code {code} in `{' '.join(argv)}`:\n{excerpt}", remedy=remedy)

    def _stamp_path(self, stage: str) -> Path:
        return self.plan.tree / "stamps" / f"{stage}.json"

    @contextmanager
    def _stamp(self, stage: str) -> Iterator[None]:
        """Record the stage as finished, with its seconds, if the block ends well."""
        self.log(stage).unlink(missing_ok=True)
        began = time.monotonic()
        yield
        calls = read_calls(self.plan.tree / commands.CCACHE_LOG)
        if stage in ("canary", "compile"):  # what configure compiles are trials
            for language, counted in calls.items():
                self.console.line(f"  compiler cache, {language}: {counted}")
        phase = Phase.read(stage, self.plan.tree / commands.usage_file(stage), time.monotonic() - began, calls)
        write_atomically(self._stamp_path(stage), phase.to_json(self.plan.fingerprint))
        (self.plan.tree / commands.CCACHE_LOG).unlink(missing_ok=True)  # a stage that failed goes on counting

    def phases(self) -> list[Phase]:
        """What the finished stages took."""
        return [Phase.from_json(self._stamp_path(s).read_text("utf-8")) for s in self.plan.stages if self.finished(s)]

    def _write_report(self) -> None:
        title = f"{self.plan.release.name} for Python {self.plan.python}, {' '.join(self.plan.archs)}"
        page = render(title, self.phases(), read_log(self.plan.source / "build" / ".ninja_log"))
        write_atomically(self.plan.tree / "logs" / "report.html", page)

    def _fetch(self) -> None:
        source.prepare(self.plan.checkout, self.plan.source, settings=self.settings, console=self.console)

    def _hipify(self) -> None:
        started = self.plan.tree / "stamps" / "hipify.started"
        if started.exists():  # killed in the middle: its output cannot be told from its input
            shutil.rmtree(self.plan.source, ignore_errors=True)
            self._fetch()
        started.touch()
        self.command("hipify", commands.argv(self.plan, self.plan.release.recipe.hipify))
        source.apply_series(self.plan.checkout, self.plan.source, "hipified", self.console)

    def _configure(self) -> None:
        check_kernel(self.plan, lambda argv: self.command("configure", argv))
        warn_of_windows(self.plan, self._versions, self.console)
        shutil.rmtree(self.plan.source / "build", ignore_errors=True)
        self.command("configure", commands.argv(self.plan, self.plan.release.recipe.configure))
        gates.check_configure(self.plan, self.log("configure").read_text("utf-8", "replace"))

    def _versions(self) -> list[str]:
        lines: list[str] = []
        self._in_tree(version_command(self.plan), lines.append)
        return lines

    def _canary(self) -> None:
        self._ninja("canary", self.plan.release.recipe.canary_target)
        run_canary(self.plan, lambda argv: self.command("canary", argv))

    def _compile(self) -> None:
        self._check_disk()
        self._ninja("compile")
        gates.check_compile(self.plan)
        calls = read_calls(self.plan.tree / commands.CCACHE_LOG)
        took = Phase.read("compile", self.plan.tree / commands.usage_file("compile"), 0, calls)
        steps = read_log(self.plan.source / "build" / ".ninja_log")
        learn(steps, took, archs=len(self.plan.archs), measured=self.plan.measured)

    def _check_disk(self) -> None:
        """Raise :class:`NoSpace` unless the rest of the tree fits: hours later is too late."""
        cost = self.plan.release.cost
        free = shutil.disk_usage(self.plan.tree).free
        there = sum(f.stat().st_size for f in (self.plan.source / "build").rglob("*") if f.is_file())
        if cost and (needed := cost.disk * 1e9 - there) > free:
            raise NoSpace(
                f"{self.plan.tree} has {free / 1e9:.1f} GB free; the compile takes {needed / 1e9:.1f} GB more",
                remedy="remove old trees, or set cache_dir (ROCM_WHEELS_CACHE_DIR) to a larger disk",
            )

    def _wheel(self) -> None:
        for pattern in ("lib.*", "bdist.*"):
            for left in (self.plan.source / "build").glob(pattern):
                shutil.rmtree(left)
        shutil.rmtree(self.plan.tree / "out")
        (self.plan.tree / "out").mkdir()
        recipe = self.plan.release.recipe
        self.command("wheel", [*commands.argv(self.plan, recipe.wheel), "--outdir", f"{commands.TREE}/out"])
        gates.check_wheel(self.plan, built_wheel(self.plan))


def built_wheel(plan: BuildPlan) -> Path:
    """The one wheel that the build left; raises :class:`StageFailed` when there is not exactly one."""
    wheels = sorted((plan.tree / "out").glob("*.whl"))
    if len(wheels) != 1:
        raise StageFailed(
            f"the build left {len(wheels)} wheels in {plan.tree / 'out'}, one was expected",
            remedy="build again with --fresh",
        )
    return wheels[0]


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and rename it in."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, "utf-8")
    beside.replace(path)
