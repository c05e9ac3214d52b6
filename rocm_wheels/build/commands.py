"""The commands of a build and the environment that they run in, inside the builder container.

Paths in the container are fixed, so that the same inputs give the same bytes wherever the tree lies on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.build.runner import Mount
from rocm_wheels.config import PROJECT_ROOT

if TYPE_CHECKING:
    from rocm_wheels.build.plan import BuildPlan

TREE = "/build"
SOURCE = "/build/src"
PROJECT = "/rocm-wheels"
TOOLS_PYTHON = "/opt/tools/bin/python"
TOOLCHAIN = "toolchain.tsv"
CCACHE_LOG = "logs/ccache.log"

# These change how fast a build is, not what it gives.
_CCACHE = {
    "CCACHE_DIR": "/ccache",
    "CCACHE_BASEDIR": TREE,
    "CCACHE_NOHASHDIR": "1",
    # hipcc is a script or a small driver: the compiler, linker and device libraries behind it are in this list.
    "CCACHE_COMPILERCHECK": "content",
    "CCACHE_EXTRAFILES": f"{TREE}/{TOOLCHAIN}",
    # Generated headers are as young as the compile that reads them; ccache would not trust them otherwise.
    "CCACHE_SLOPPINESS": "include_file_ctime,include_file_mtime",
    "CCACHE_STATSLOG": f"{TREE}/{CCACHE_LOG}",
}
WITHOUT_EFFECT = {*_CCACHE, "CCACHE_REMOTE_STORAGE", "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"}

# Zip's earliest date: no file of a wheel may depend on when it was built.
SOURCE_DATE_EPOCH = "315532800"


def build_python(plan: BuildPlan) -> str:
    """The interpreter in the image that the wheel is for."""
    return f"/opt/python/{plan.python}/bin/python"


def argv(plan: BuildPlan, command: Sequence[str]) -> list[str]:
    """A recipe's command with ``python`` replaced by the build Python."""
    return [build_python(plan) if word == "python" else word for word in command]


def project_task(*words: str) -> list[str]:
    """A task of this project, run by the tools of the image."""
    return [TOOLS_PYTHON, "-m", "invoke", "--search-root", PROJECT, *words]


def measured(stage: str, words: Sequence[str]) -> list[str]:
    """``words`` run so that what they take is added to the file of ``stage``."""
    return [TOOLS_PYTHON, f"{PROJECT}/rocm_wheels/build/measured.py", f"{TREE}/{usage_file(stage)}", *words]


def usage_file(stage: str) -> str:
    """Where in the tree it is written what the commands of ``stage`` took."""
    return f"logs/{stage}.usage.jsonl"


def task_environment() -> dict[str, str]:
    """Variables of a task of this project inside the image."""
    return {"LANG": "C.UTF-8", "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH, "PYTHONDONTWRITEBYTECODE": "1"}


def mounts(plan: BuildPlan) -> tuple[Mount, ...]:
    """What the container sees of the host: the tree and the compiler cache, and this project read-only."""
    return (
        Mount(plan.tree, TREE),
        Mount(plan.ccache, "/ccache"),
        Mount(PROJECT_ROOT, PROJECT, read_only=True),
    )


def environment(plan: BuildPlan) -> dict[str, str]:
    """Variables of every build command. PyTorch regenerates its build when one of them changes half-way."""
    archs = ";".join(plan.archs)
    python = str(Path(build_python(plan)).parent)
    rocm = [] if plan.image.rocm_path == "/usr" else [f"{plan.image.rocm_path}/bin"]
    return {
        "PATH": ":".join((python, "/opt/tools/bin", *rocm, "/usr/local/bin", "/usr/bin", "/bin")),
        "HOME": f"{TREE}/home",
        "LANG": "C.UTF-8",
        "USE_ROCM": "1",
        "USE_CUDA": "0",
        # One name is read by PyTorch, the others by ROCm's own CMake packages; none may fall back to detection.
        **dict.fromkeys(("PYTORCH_ROCM_ARCH", "AMDGPU_TARGETS", "GPU_TARGETS", "HIP_ARCHITECTURES"), archs),
        "PYTORCH_BUILD_VERSION": plan.version,
        "PYTORCH_BUILD_NUMBER": "1",
        "MAX_JOBS": str(plan.jobs),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(plan.jobs),
        "CMAKE_GENERATOR": "Ninja",
        **{f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX", "HIP")},
        "CMAKE_PROJECT_TOP_LEVEL_INCLUDES": f"{PROJECT}/rocm_wheels/build/launch/hip.cmake",
        **_CCACHE,
        **({"CCACHE_REMOTE_STORAGE": plan.remote_cache} if plan.remote_cache else {}),
        "SOURCE_DATE_EPOCH": SOURCE_DATE_EPOCH,
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict(plan.release.recipe.env),
    }
