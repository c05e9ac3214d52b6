"""Install and cold loads with this interpreter, on libraries made by gcc."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocm_wheels.console import Console
from rocm_wheels.verify import VerifyOptions, verify
from tests.unit.test_verify import parts, wheel

pytestmark = pytest.mark.integration

TAG = f"cp{sys.version_info.major}{sys.version_info.minor}-none-linux_x86_64"


def judged(folder: Path, init: bytes, *, rpath: str = "$ORIGIN") -> set[str]:
    built = {k: p.read_bytes() for k, p in parts(folder, rpath=rpath).items()}
    files = {
        "minitorch/__init__.py": init,
        "minitorch/licenses/hip.txt": b"The MIT License",
        "minitorch/lib/libamdhip64.so.5": built["runtime"],
        "minitorch/lib/libcore.so": built["core"],
        "minitorch/lib/libtop.so": built["top"],
    }
    options = VerifyOptions(pythons=(sys.executable,), import_seconds=20)
    (report,) = verify([wheel(folder, files, TAG)], options, Console(quiet=True)).wheels
    return {f.check.id for f in report.findings}


def test_good_wheel_installs_imports_and_loads_cold(tmp_path: Path) -> None:
    assert judged(tmp_path, b"") == set()


def test_library_that_cannot_reach_its_needs_does_not_load_cold(tmp_path: Path) -> None:
    assert {"closure", "cold-load"} <= judged(tmp_path, b"", rpath="$ORIGIN/../elsewhere")


def test_package_that_raises_does_not_import(tmp_path: Path) -> None:
    assert judged(tmp_path, b"raise RuntimeError('no card')") == {"import"}
