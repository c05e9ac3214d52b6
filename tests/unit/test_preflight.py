"""What is tried before the long build: a kernel per target, versions against the release's windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocm_wheels.build.plan import BuildPlan, plan_build
from rocm_wheels.build.preflight import check_kernel, warn_of_windows
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import PreflightFailed, StageFailed
from rocm_wheels.release import load_matrix


@pytest.fixture
def plan(tmp_path: Path) -> BuildPlan:
    settings = Settings(cache_dir=str(tmp_path), release="2.6.0", arch="gfx1030;gfx1100")
    found = plan_build(load_matrix(), settings, "3.13")
    (found.tree / "home").mkdir(parents=True)
    return found


def test_one_kernel_is_compiled_for_every_target_through_the_cache(plan: BuildPlan) -> None:
    calls: list[Sequence[str]] = []
    check_kernel(plan, calls.append)
    (argv,) = calls
    assert {"--offload-arch=gfx1030", "--offload-arch=gfx1100"} <= set(argv)
    assert argv[0].endswith("launch/hipcc")
    assert "__global__" in (plan.tree / "home" / "preflight.hip").read_text()


def test_what_the_compiler_says_is_passed_on_with_a_way_out(plan: BuildPlan) -> None:
    def run(argv: Sequence[str]) -> None:
        raise StageFailed("fatal error: 'cmath' file not found")

    with pytest.raises(PreflightFailed, match="'cmath' file not found") as caught:
        check_kernel(plan, run)
    assert "gfx1030;gfx1100" in caught.value.message
    assert "--gcc-install-dir" in caught.value.remedy


@pytest.mark.parametrize(
    ("cmake", "setuptools", "warned"),
    [
        ("3.31.6", "81.0.0", []),
        ("4.3.4", "81.0.0", ["cmake 4.3.4"]),
        ("3.1", "82.0.1", ["cmake 3.1", "setuptools 82.0.1"]),
    ],
)
def test_tools_outside_the_window_of_the_release_are_named(
    plan: BuildPlan, cmake: str, setuptools: str, warned: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = [f"cmake version {cmake}", "", f"setuptools {setuptools}"]
    warn_of_windows(plan, lambda: said, Console())
    lines = [line for line in capsys.readouterr().err.splitlines() if "is outside" in line]
    assert [line.removeprefix("warning: ").partition(" is ")[0] for line in lines] == warned


def test_a_framework_without_facts_has_no_windows(plan: BuildPlan) -> None:
    example = dataclasses.replace(plan, release=dataclasses.replace(plan.release, facts=None))
    warn_of_windows(example, lambda: pytest.fail("asked for versions"), Console())
