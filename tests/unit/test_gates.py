from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rocm_wheels.build.gates import check_compile, check_configure, check_wheel
from rocm_wheels.build.plan import BuildPlan, plan_build
from rocm_wheels.config import Settings
from rocm_wheels.errors import CompileRejected, ConfigureRejected
from rocm_wheels.release import load_matrix
from tests.elf_fixtures import bundle, make_library
from tests.wheel_fixtures import make_wheel

LOG = "-- Configuring done\n"
UNUSED = """CMake Warning:
  Manually-specified variables were not used by the project:

    GGML_HIPBLAS

-- Build files have been written
"""


@pytest.fixture
def plan(tmp_path: Path) -> BuildPlan:
    settings = Settings(cache_dir=str(tmp_path), release="minitorch", arch="gfx1030;gfx1100")
    found = plan_build(load_matrix(), settings, "3.13")
    recipe = dataclasses.replace(
        found.release.recipe,
        required_cache=(("USE_ROCM", "ON"), ("BLAS", "Eigen")),
        required_files=("minitorch/lib/libmini_hip.so",),
        hip_libraries=("minitorch/lib/libmini_hip.so",),
        unused_variables_allowed=(),
    )
    return dataclasses.replace(found, release=dataclasses.replace(found.release, recipe=recipe))


def configured(plan: BuildPlan, *, cache: str = "", ninja: str = "") -> None:
    build = plan.source / "build"
    build.mkdir(parents=True)
    (build / "CMakeCache.txt").write_text(cache or "USE_ROCM:BOOL=1\nBLAS:STRING=Eigen\n")
    (build / "build.ninja").write_text(ninja or "c = hipcc --offload-arch=gfx1030 --offload-arch=gfx1100 x\n")


def test_what_was_asked_for_passes(plan: BuildPlan) -> None:
    configured(plan)
    check_configure(plan, LOG)


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ("USE_ROCM:BOOL=OFF\nBLAS:STRING=Eigen\n", "USE_ROCM is 'OFF'"),
        ("BLAS:STRING=Eigen\n", "USE_ROCM is not in the CMake cache"),
        ("USE_ROCM:BOOL=ON\nBLAS:STRING=\n", "BLAS is ''"),
    ],
)
def test_a_feature_that_turned_off_is_refused(plan: BuildPlan, cache: str, message: str) -> None:
    configured(plan, cache=cache)
    with pytest.raises(ConfigureRejected, match=message):
        check_configure(plan, LOG)


@pytest.mark.parametrize(
    ("ninja", "message"),
    [
        ("c = --offload-arch=gfx1030\n", "no compile command carries --offload-arch for gfx1100"),
        ("c = --offload-arch=gfx1030 --offload-arch=gfx1100 --offload-arch=gfx90a\n", "gfx90a, which nobody asked"),
        ("c = gcc\n", "gfx1030, gfx1100"),
    ],
)
def test_another_arch_list_is_refused(plan: BuildPlan, ninja: str, message: str) -> None:
    configured(plan, ninja=ninja)
    with pytest.raises(ConfigureRejected, match=message):
        check_configure(plan, LOG)


def test_an_option_that_the_project_does_not_know_is_refused(plan: BuildPlan) -> None:
    configured(plan)
    with pytest.raises(ConfigureRejected, match="does not know the variable GGML_HIPBLAS"):
        check_configure(plan, UNUSED)


def test_all_problems_are_listed_at_once(plan: BuildPlan) -> None:
    configured(plan, cache="USE_ROCM:BOOL=0\n", ninja="c = gcc\n")
    with pytest.raises(ConfigureRejected, match=r"(?s)USE_ROCM.*BLAS.*GGML_HIPBLAS|USE_ROCM.*BLAS.*offload"):
        check_configure(plan, UNUSED)


def test_missing_cache_is_refused(plan: BuildPlan) -> None:
    with pytest.raises(ConfigureRejected, match="no CMake cache"):
        check_configure(plan, LOG)


def hip_library(folder: Path, *archs: tuple[str, ...]) -> Path:
    runtime = make_library(folder, "libamdhip64.so.5", soname="libamdhip64.so.5")
    return make_library(folder, "libmini_hip.so", needs=[runtime], bundles=[bundle(a) for a in archs])


def test_device_code_for_every_arch_passes(plan: BuildPlan) -> None:
    hip_library(plan.source / "build" / "lib", ("gfx1030", "gfx1100"), ("gfx1100", "gfx1030"))
    check_compile(plan)


def test_one_bundle_without_an_arch_is_refused(plan: BuildPlan) -> None:
    hip_library(plan.source / "build" / "lib", ("gfx1030", "gfx1100"), ("gfx1030",))
    with pytest.raises(CompileRejected, match="1 of 2 offload bundles have no code for gfx1100"):
        check_compile(plan)


def test_cpu_library_is_refused(plan: BuildPlan) -> None:
    make_library(plan.source / "build" / "lib", "libmini_hip.so")
    with pytest.raises(CompileRejected, match=r"(?s)CPU library.*no device code"):
        check_compile(plan)


def test_missing_library_is_refused(plan: BuildPlan) -> None:
    with pytest.raises(CompileRejected, match=r"libmini_hip\.so was not built"):
        check_compile(plan)


def wheel(plan: BuildPlan, tmp_path: Path, *, version: str = "", name: str = "lib/libmini_hip.so") -> Path:
    data = hip_library(tmp_path / "x", ("gfx1030", "gfx1100")).read_bytes()
    return make_wheel(
        tmp_path / "w", "minitorch", version or plan.version, files={f"minitorch/{name}": data, "minitorch/a.py": b""}
    )


def test_wheel_with_everything_passes(plan: BuildPlan, tmp_path: Path) -> None:
    check_wheel(plan, wheel(plan, tmp_path))


def test_wheel_of_another_version_is_refused(plan: BuildPlan, tmp_path: Path) -> None:
    with pytest.raises(CompileRejected, match=r"says version 0\.1\.0, 0\.1\.0\+rocm5\.7 was asked for"):
        check_wheel(plan, wheel(plan, tmp_path, version="0.1.0"))


def test_wheel_without_a_required_file_is_refused(plan: BuildPlan, tmp_path: Path) -> None:
    with pytest.raises(CompileRejected, match=r"has no minitorch/lib/libmini_hip\.so"):
        check_wheel(plan, wheel(plan, tmp_path, name="lib/other.so"))
