"""What a build does when a compiler is killed, the disk is small, or the image changed; the engine is a stand-in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocm_wheels.build import stages
from rocm_wheels.build.plan import BuildPlan, plan_build
from rocm_wheels.build.runner import Command, Engine
from rocm_wheels.build.stages import Builder
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import CompilerKilled, NoSpace, StageFailed
from rocm_wheels.release import load_matrix

KILLED = "g++: fatal error: Killed signal terminated program cc1plus"


class StandIn(Engine):
    """Answers each `cmake --build` with the next of ``results``: exit code and output."""

    name = "stand-in"
    version = "1"

    def __init__(self, *results: tuple[int, str]) -> None:
        self.results: Iterator[tuple[int, str]] = iter(results)
        self.builds: list[str] = []

    def _run(self, command: Command, on_line: Callable[[str], None]) -> int:
        words = " ".join(command.argv)
        if "cmake --build" not in words:
            return 0
        self.builds.append(words[words.index("cmake --build") :])
        code, text = next(self.results)
        on_line(text)
        return code


@pytest.fixture(autouse=True)
def no_kill_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "oom_kills", lambda: 0)


@pytest.fixture
def plan(tmp_path: Path) -> BuildPlan:
    settings = Settings(cache_dir=str(tmp_path), release="minitorch", arch="gfx1030", jobs=4)
    return plan_build(load_matrix(), settings, "3.13")


def builder(plan: BuildPlan, engine: StandIn, tmp_path: Path) -> Builder:
    for directory in (plan.source / "build", plan.tree / "logs", plan.ccache):
        directory.mkdir(parents=True)
    return Builder(plan=plan, engine=engine, settings=Settings(cache_dir=str(tmp_path)), console=Console(quiet=True))


def test_a_killed_compiler_is_followed_by_fewer_jobs(plan: BuildPlan, tmp_path: Path) -> None:
    engine = StandIn((1, KILLED), (1, KILLED), (0, "[1/1] Linking"))
    builder(plan, engine, tmp_path)._ninja("compile")
    assert [words.rpartition(" ")[2] for words in engine.builds] == ["4", "2", "1"]


def test_a_compiler_that_is_too_large_alone_is_an_error(plan: BuildPlan, tmp_path: Path) -> None:
    engine = StandIn(*[(1, KILLED)] * 3)
    with pytest.raises(CompilerKilled, match="cc1plus"):
        builder(plan, engine, tmp_path)._ninja("compile")


def test_the_kernel_tells_when_the_compiler_does_not(
    plan: BuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter([3, 5, 5])  # before, after; before the next
    monkeypatch.setattr(stages, "oom_kills", lambda: next(kills, 5))
    engine = StandIn((1, "FAILED: a.o"), (0, ""))
    builder(plan, engine, tmp_path)._ninja("compile", "c10")
    assert engine.builds[1] == "cmake --build build --parallel 2 --target c10"


@pytest.mark.parametrize("text", ["a.cpp:1:1: error: no member", "ninja: build stopped: subcommand failed."])
def test_another_failure_is_not_taken_for_memory(plan: BuildPlan, tmp_path: Path, text: str) -> None:
    engine = StandIn((1, text))
    with pytest.raises(StageFailed):
        builder(plan, engine, tmp_path)._ninja("compile")
    assert len(engine.builds) == 1


def test_a_disk_that_is_too_small_is_said_before_the_compile(plan: BuildPlan, tmp_path: Path) -> None:
    cost = dataclasses.replace(load_matrix().release("2.6.0").builds[0].cost, disk=1e9)  # type: ignore[type-var]
    huge = dataclasses.replace(plan, release=dataclasses.replace(plan.release, cost=cost))
    engine = StandIn()
    with pytest.raises(NoSpace, match="GB more"):
        builder(huge, engine, tmp_path)._compile()
    assert engine.builds == []
