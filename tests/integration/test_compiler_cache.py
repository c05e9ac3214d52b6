"""Nothing is compiled twice: with real ccache, hipcc and redis, on minitorch (`nox -s bench -- build`)."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.build import commands
from rocm_wheels.build.compiler_cache import Calls, read_calls
from rocm_wheels.build.engine import find_engine
from rocm_wheels.build.image import ensure_image
from rocm_wheels.build.plan import plan_build
from rocm_wheels.build.setup import ensure_packages
from rocm_wheels.config import load
from rocm_wheels.console import Console
from rocm_wheels.errors import PackagesMissing
from rocm_wheels.release import load_matrix
from tests.bench.build import Run, measure

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    try:
        for purpose in ("engine", "tests"):
            ensure_packages(purpose, Console())
    except PackagesMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("cache")
    yield measure(folder, Console())
    shutil.rmtree(folder)


def test_an_empty_cache_is_filled_with_every_language(runs: dict[str, Run]) -> None:
    calls = runs["empty cache"].calls
    assert set(calls) == {"C", "C++", "HIP"}
    assert all(counted.hits == 0 and counted.misses and not counted.uncached for counted in calls.values())


def test_a_second_python_compiles_only_what_includes_its_headers(runs: dict[str, Run]) -> None:
    first, second = runs["empty cache"], runs["second Python"]
    assert (second.calls["C++"].rate, second.calls["HIP"].rate) == (1.0, 1.0)
    assert second.calls["C"].misses == 1  # module.c includes Python.h
    assert second.core_seconds <= first.core_seconds / 4
    assert second.sha256 != first.sha256


@pytest.mark.parametrize("name", ["another directory", "another machine"])
def test_a_warm_cache_gives_the_same_wheel_elsewhere(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    assert all(counted.rate == 1.0 for counted in run.calls.values())
    assert run.sha256 == runs["empty cache"].sha256


FINDHIP = """
cmake_minimum_required(VERSION 3.22)
project(findhip LANGUAGES C CXX)
list(APPEND CMAKE_MODULE_PATH /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/cmake/hip)
set(HIP_ROOT_DIR /usr)
set(ROCM_PATH /usr)
find_package(HIP REQUIRED MODULE)
find_package(hip REQUIRED CONFIG)
set_source_files_properties(kernel.hip PROPERTIES HIP_SOURCE_PROPERTY_FORMAT 1)
hip_add_library(kernels SHARED kernel.hip HIPCC_OPTIONS --offload-arch=gfx1030 -fPIC)
"""
KERNEL = "#include <hip/hip_runtime.h>\n__global__ void k(float* a) { a[threadIdx.x] *= 2; }\n"


def test_kernels_that_findhip_compiles_go_through_the_cache(tmp_path: Path) -> None:
    """Its scripts call hipcc by its path, past every launcher (ROCm/TheRock#3171): PyTorch's kernels up to 2.13."""
    settings = dataclasses.replace(load(), cache_dir=str(tmp_path))
    plan = plan_build(load_matrix(), settings, "3.13")
    for folder in (plan.source, plan.tree / "logs", plan.ccache):
        folder.mkdir(parents=True)
    (plan.source / "CMakeLists.txt").write_text(FINDHIP)
    (plan.source / "kernel.hip").write_text(KERNEL)
    (plan.tree / commands.TOOLCHAIN).touch()
    script = (
        "cmake -S . -B build -DCMAKE_PROJECT_TOP_LEVEL_INCLUDES=$CMAKE_PROJECT_TOP_LEVEL_INCLUDES && ninja -C build"
    )
    lines: list[str] = []
    counted = []
    with find_engine(console=Console(quiet=True), settings=settings) as engine:
        image = ensure_image(plan.image, engine=engine, settings=settings, console=Console())
        for _ in range(2):
            shutil.rmtree(plan.source / "build", ignore_errors=True)
            mounts, env = commands.mounts(plan), commands.environment(plan)
            argv = ["sh", "-c", script]
            code = engine.run(image.tag, argv, mounts=mounts, env=env, workdir=commands.SOURCE, on_line=lines.append)
            assert code == 0, "\n".join(lines)
            counted.append(read_calls(plan.tree / commands.CCACHE_LOG)["HIP"])
            (plan.tree / commands.CCACHE_LOG).unlink()
    assert counted == [Calls(misses=1), Calls(hits=1)]
