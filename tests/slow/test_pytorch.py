"""The real PyTorch 2.6.0 in Debian unstable's image: an image of 10 GB, then hours of compiling.

`nox -s tests-slow -- -k canary` stops before the long compile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_wheels.config import PROJECT_ROOT, load

pytestmark = pytest.mark.slow

BUILD = ("-s", "build-3.13", "--", "--release", "2.6.0", "--image", "debian-sid", "--arch", "gfx1030")


def nox(dist: Path, *words: str) -> None:
    """Run nox; a build that was stopped before goes on in its tree."""
    environment = {**os.environ, "ROCM_WHEELS_DIST_DIR": str(dist)}
    done = subprocess.run([sys.executable, "-m", "nox", *words], cwd=PROJECT_ROOT, env=environment, check=False)
    assert done.returncode == 0


def cache_entries(python: str) -> str:
    """CMake's cache of the newest tree for ``python``."""
    trees = (load().cache / "trees").glob(f"pytorch-2.6.0-cp{python}-*/src/build/CMakeCache.txt")
    return max(trees, key=lambda file: file.stat().st_mtime).read_text("utf-8")


def test_the_series_serves_unstable_as_far_as_the_canary_with_miopen_and_hipblaslt(tmp_path: Path) -> None:
    nox(tmp_path, *BUILD, "--until", "canary")
    cache = cache_entries("313")
    for library in ("miopen", "hipblaslt", "hiprtc"):
        assert f"{library}_DIR:PATH=/usr/lib/x86_64-linux-gnu/cmake/{library}" in cache


def test_the_whole_wheel_is_built_repaired_and_verified(tmp_path: Path) -> None:
    nox(tmp_path, *BUILD)
    (wheel,) = (tmp_path / "built").glob("torch-*.whl")
    stages = json.loads(wheel.with_suffix(".manifest.json").read_text("utf-8"))["stages"]
    assert stages["compile"]["compiler_cache"]["HIP"]
    repaired = tmp_path / "thin"
    for words in (
        ["repair", str(wheel), "--mode", "thin", "--dest", str(repaired)],
        ["verify", str(repaired), "--profile", "any", "--arch", "gfx1030"],
    ):
        subprocess.run([sys.executable, "-m", "invoke", *words], cwd=PROJECT_ROOT, check=True)
