"""What a long compile would stumble over, tried first on one small file: a minute instead of hours.

A host C++ library that the device compiler cannot read (pytorch#145608), a gcc directory without headers that clang
prefers (NixOS/nixpkgs#468809), a target without device libraries, and tools outside the release's window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from packaging.specifiers import SpecifierSet

from rocm_wheels.build import commands
from rocm_wheels.build.plan import BuildPlan
from rocm_wheels.console import Console
from rocm_wheels.errors import PreflightFailed, StageFailed

_FILE = "home/preflight.hip"
# Standard headers that kernels of PyTorch use on both sides; a function of each is called in device code.
_KERNEL = """#include <hip/hip_runtime.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <tuple>
__global__ void preflight(float* out) {
  std::array<float, 2> pair{out[0], out[1]};
  auto both = std::make_tuple(std::max(pair[0], std::numeric_limits<float>::lowest()), std::sqrt(pair[1]));
  out[threadIdx.x] = std::get<0>(both) + std::get<1>(both);
}
void launch(float* out) { preflight<<<1, 2>>>(out); }
"""


def check_kernel(plan: BuildPlan, run: Callable[[Sequence[str]], None]) -> None:
    """Compile a kernel for every target of the plan by ``run`` (a command in the container).

    Raises :class:`PreflightFailed` with the compiler's first words.
    """
    (plan.tree / _FILE).write_text(_KERNEL, "utf-8")
    targets = [f"--offload-arch={arch}" for arch in plan.archs]
    wanted = [*targets, "-std=c++17", "-O2", "-fPIC", "-c", f"{commands.TREE}/{_FILE}"]
    try:
        run([f"{commands.PROJECT}/rocm_wheels/build/launch/hipcc", *wanted, "-o", f"{commands.TREE}/home/preflight.o"])
    except StageFailed as error:
        raise PreflightFailed(
            f"hipcc of {plan.image.name} does not compile a small kernel for {';'.join(plan.archs)}:\n{error.message}",
            remedy="leave out the target that it names (--arch), or build in another image; where clang chose a gcc "
            "without headers, give it --gcc-install-dir through HIPCC_COMPILE_FLAGS_APPEND",
        ) from error


def warn_of_windows(plan: BuildPlan, versions: Callable[[], Sequence[str]], console: Console) -> None:
    """Say which of the image's tools are outside the window that the release is known to build with."""
    facts = plan.release.facts
    if facts is None:
        return
    said = "\n".join(versions())
    for tool, window in (("cmake", facts.cmake), ("setuptools", facts.setuptools)):
        found = re.search(rf"^{tool}(?: version)? ([\d.]+)", said, re.MULTILINE)
        if found and window.value and not SpecifierSet(window.value).contains(found[1]):
            reason = f" ({window.note})" if window.note else ""
            console.warn(f"{tool} {found[1]} is outside {window.value}, which {plan.release.name} is known for{reason}")


def version_command(plan: BuildPlan) -> list[str]:
    """Prints the versions that :func:`warn_of_windows` reads."""
    python = commands.build_python(plan)
    show = "import setuptools; print('setuptools', setuptools.__version__)"
    return ["sh", "-c", 'cmake --version; "$0" -c "$1"', python, show]
