"""The stages of a build, each with a stamp; a run picks up at the first stage that has none.

What a killed stage may have left half-written is removed before it runs again: source files after an unfinished
hipify, CMake's tree after an unfinished configure, setuptools' copies after an unfinished wheel. Objects stay: ninja
rebuilds those that its log does not vouch for.
"""

from __future__ import annotations

import json
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
from rocm_wheels.build.compiler_cache import read_calls
from rocm_wheels.build.engine import Engine
from rocm_wheels.build.plan import BuildPlan
from rocm_wheels.build.toolchain import record_toolchain
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import CompilerKilled, StageFailed

_NINJA_STEP = re.compile(r"^\[(\d+)/(\d+)\]")
_REAL_ERROR = re.compile(r"(\berror:|\bError\b|CMake Error|FAILED:|undefined reference|No space left|Killed)")


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

    def finished(self, stage: str) -> bool:
        """Whether ``stage`` ended well in this tree."""
        return self._stamp_path(stage).is_file()

    def log(self, stage: str) -> Path:
        """Where the output of ``stage`` is kept."""
        return self.plan.tree / "logs" / f"{stage}.log"

    def command(self, stage: str, argv: Sequence[str]) -> None:
        """Run ``argv`` in the container, its output going to the log of ``stage``.

        Raises :class:`CompilerKilled` when memory was the cause and :class:`StageFailed` otherwise.
        """
        log = self.log(stage)
        with log.open("a", encoding="utf-8") as stream, self.console.progress(stage, 100) as advance:
            shown = 0

            def on_line(line: str) -> None:
                nonlocal shown
                stream.write(line.rstrip("\n") + "\n")
                if step := _NINJA_STEP.match(line):
                    percent = int(step[1]) * 100 // int(step[2])
                    if percent > shown:
                        advance(percent - shown)
                        shown = percent

            stream.write(f"$ {' '.join(argv)}\n")
            code = self.engine.run(
                self.plan.image_tag,
                list(argv),
                mounts=commands.mounts(self.plan),
                env=commands.environment(self.plan),
                workdir=commands.SOURCE,
                on_line=on_line,
            )
        if code:
            self._fail(stage, argv, code)

    def _quietly(self, argv: Sequence[str], on_line: Callable[[str], None]) -> None:
        """Run ``argv`` in the image alone, its output going to ``on_line`` only."""
        if code := self.engine.run(self.plan.image_tag, list(argv), on_line=on_line):
            raise StageFailed(f"`{' '.join(argv)}` ended with exit code {code} in {self.plan.image_tag}")

    def _fail(self, stage: str, argv: Sequence[str], code: int) -> None:
        text = self.log(stage).read_text("utf-8", "replace")
        excerpt = first_error(text.rsplit("\n$ ", 1)[-1])
        if code == 137 or re.search(r"\bKilled\b|signal 9|out of memory", excerpt):
            jobs = self.plan.jobs
            raise CompilerKilled(
                f"{stage}: a process was killed with {jobs} jobs running, most likely out of memory\n{excerpt}",
                remedy=f"run again with fewer jobs, it continues where it stopped: --jobs {max(1, jobs // 2)}",
            )
        raise StageFailed(
            f"{stage} failed with exit code {code} in `{' '.join(argv)}`:\n{excerpt}",
            remedy=f"the whole log is {self.log(stage)}; run again to resume at {stage}",
        )

    def _stamp_path(self, stage: str) -> Path:
        return self.plan.tree / "stamps" / f"{stage}.json"

    @contextmanager
    def _stamp(self, stage: str) -> Iterator[None]:
        """Record the stage as finished, with its seconds, if the block ends well."""
        self.log(stage).unlink(missing_ok=True)
        log = self.plan.tree / commands.CCACHE_LOG
        log.unlink(missing_ok=True)
        began = time.monotonic()
        yield
        calls = read_calls(log)
        if stage in ("canary", "compile"):  # what configure compiles are trials
            for language, counted in calls.items():
                self.console.line(f"  compiler cache, {language}: {counted}")
        stamp = {
            "stage": stage,
            "fingerprint": self.plan.fingerprint,
            "seconds": round(time.monotonic() - began, 1),
            "compiler_cache": {language: counted.as_dict() for language, counted in calls.items()},
        }
        write_atomically(self._stamp_path(stage), json.dumps(stamp, sort_keys=True) + "\n")

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
        shutil.rmtree(self.plan.source / "build", ignore_errors=True)
        self.command("configure", commands.argv(self.plan, self.plan.release.recipe.configure))
        gates.check_configure(self.plan, self.log("configure").read_text("utf-8", "replace"))

    def _canary(self) -> None:
        recipe = self.plan.release.recipe
        self.command("canary", ["cmake", "--build", "build", "--target", recipe.canary_target])
        run_canary(self.plan, lambda argv: self.command("canary", argv))

    def _compile(self) -> None:
        self.command("compile", ["cmake", "--build", "build"])
        gates.check_compile(self.plan)

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


def first_error(log: str, *, context: int = 3, length: int = 12) -> str:
    """The first line of ``log`` that reports an error, with what stands around it; else its last lines."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if _REAL_ERROR.search(line):
            return "\n".join(lines[max(0, number - context) : number + length])
    return "\n".join(lines[-length:])


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and rename it in."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, "utf-8")
    beside.replace(path)
