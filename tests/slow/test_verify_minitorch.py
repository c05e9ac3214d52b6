"""minitorch as it is really built and repaired, and wheels that are almost it.

Needs the wheels of `nox -s quickstart` in dist/ (or ROCM_WHEELS_DIST_DIR) and CMake with Ninja on this machine, where
the CPU build is made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rocm_wheels.config import load
from rocm_wheels.console import Console
from rocm_wheels.verify import VerifyOptions, verify
from rocm_wheels.wheel.record import digest
from tests.integration.test_minitorch import lay

pytestmark = pytest.mark.slow

ARCHS = ("gfx1030", "gfx1100")
BLAS = "minitorch/lib/rocblas/"
Change = Callable[[str, bytes], bytes | None]


def wheel(mode: str) -> Path:
    found = sorted((Path(load().dist_dir) / mode).glob("minitorch-*cp313*.whl"))
    if not found:
        pytest.skip(f"there is no {mode} wheel of minitorch: nox -s quickstart makes it")
    return found[0]


def findings(path: Path, *, archs: tuple[str, ...] = ARCHS, commit: str = "") -> dict[str, str]:
    report = verify([path], VerifyOptions(archs=archs, commit=commit), Console(quiet=True))
    return {f.check.id: f"{f.member}: {f.evidence}" for f in report.findings if f.check.severity.name == "ERROR"}


def changed(path: Path, folder: Path, change: Change) -> Path:
    """The wheel with files changed or (None) left out, and RECORD right: only the fault tells it from a good one."""
    target = folder / path.name
    rows = []
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for entry in old.infolist():
            data = change(entry.filename, old.read(entry))
            if entry.filename.endswith(".dist-info/RECORD"):
                rows.append(f"{entry.filename},,\n")
                new.writestr(entry, "".join(rows))
            elif data is not None:
                rows.append(f"{entry.filename},{digest(data)},{len(data)}\n")
                new.writestr(entry, data)
    return target


@pytest.mark.parametrize("mode", ["fat", "thin"])
def test_wheels_of_every_python_have_no_error(mode: str) -> None:
    folder = wheel(mode).parent
    report = verify(sorted(folder.glob("minitorch-*.whl")), VerifyOptions(archs=ARCHS), Console(quiet=True))
    assert report.ok, [f.as_dict() for f in report.findings]


def test_wheel_for_another_gpu_is_refused() -> None:
    found = findings(wheel("thin"), archs=("gfx1030", "gfx906"))
    assert set(found) == {"arch-missing"}
    assert "gfx906" in found["arch-missing"]


def test_wheel_of_older_sources_is_refused(tmp_path: Path) -> None:
    def older(name: str, data: bytes) -> bytes:
        return data.replace(b"'Unknown'", b"'" + b"1" * 40 + b"'") if name.endswith("version.py") else data

    found = findings(changed(wheel("thin"), tmp_path, older), commit="2" * 40)
    assert set(found) == {"stale"}
    assert "1" * 40 in found["stale"]


@pytest.mark.parametrize("lost", ["TensileLibrary.dat", "TensileLibrary_gfx1100.co", "Kernels.so-000-gfx1030.hsaco"])
def test_wheel_with_a_lost_tensile_file_is_refused(tmp_path: Path, lost: str) -> None:
    def without(name: str, data: bytes) -> bytes | None:
        return None if name.startswith(BLAS) and name.endswith(f"/{lost}") else data

    found = findings(changed(wheel("fat"), tmp_path, without))
    assert set(found) == {"data-missing"}


def test_cpu_build_under_a_rocm_name_is_refused(tmp_path: Path) -> None:
    tree = lay(tmp_path / "tree")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("USE_", "BUILD_", "CMAKE_", "PYTORCH_"))}
    env |= {"USE_ROCM": "0", "PYTORCH_BUILD_VERSION": "0.1.0+rocm5.7", "PYTORCH_BUILD_NUMBER": "1", "MAX_JOBS": "2"}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"minitorch does not build here: {(done.stderr or done.stdout)[-300:]}")
    (built,) = (tree / "dist").glob("*.whl")
    found = findings(built)
    assert {"no-device-code", "hip-inside"} <= set(found)
    assert "CPU build" in found["no-device-code"]
