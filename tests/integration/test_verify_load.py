"""Install and cold loads with this interpreter, on libraries made by gcc."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rocm_wheels.console import Console
from rocm_wheels.verify import VerifyOptions, verify
from tests.elf_fixtures import make_library
from tests.unit.test_verify import parts, wheel
from tests.wheel_fixtures import make_wheel

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


def installed(*wheels: Path, seconds: int = 20) -> dict[str, str]:
    """Findings of installing, importing and loading the first of ``wheels`` with the others."""
    groups = ("install", "load")
    options = VerifyOptions(pythons=(sys.executable,), import_seconds=seconds, only=groups)
    report = verify(wheels, options, Console(quiet=True)).wheels[0]
    return {f.check.id: f"{f.member} {f.evidence}" for f in report.findings}


def test_import_that_hangs_is_ended_with_its_stack(tmp_path: Path) -> None:
    files = {"minitorch/__init__.py": b"def waits():\n    import time\n    time.sleep(300)\nwaits()\n"}
    found = installed(wheel(tmp_path, files, "py3-none-any"), seconds=3)
    assert "not imported after 3 seconds" in found["import"]
    assert "in waits" in found["import"]


def test_wheel_for_another_python_is_not_installed(tmp_path: Path) -> None:
    found = installed(wheel(tmp_path, {"minitorch/__init__.py": b""}, "cp32-cp32-linux_x86_64"))
    assert set(found) == {"install"}


def test_second_copy_of_a_rocm_library_in_the_process(tmp_path: Path) -> None:
    load = (
        b"import ctypes, pathlib\nfor f in sorted(pathlib.Path(__file__).parent.glob('*/lib*')): ctypes.CDLL(str(f))\n"
    )
    files = {"minitorch/__init__.py": load}
    for folder, name in (("a", "libamdhip64.so.5"), ("b", "libamdhip64-0a1b2c3d.so.6")):
        files[f"minitorch/{folder}/{name}"] = make_library(tmp_path / folder, name).read_bytes()
    found = installed(wheel(tmp_path, files, TAG))
    assert "libamdhip64" in found["duplicate-library"]


def test_file_of_two_distributions_that_are_installed_together(tmp_path: Path) -> None:
    other = make_wheel(tmp_path, "torch-rocm", "1.0", "py3-none-any", {"minitorch/data.txt": b"b"})
    files = {"minitorch/__init__.py": b"", "minitorch/data.txt": b"a"}
    one = wheel(tmp_path, files, "py3-none-any", requires=["torch-rocm==1.0"])
    assert "minitorch/data.txt" in installed(one, other)["overlap"]


def test_rocm_library_from_outside_is_reported(tmp_path: Path) -> None:
    outside = make_library(tmp_path / "opt", "librocblas.so.4")
    user = make_library(tmp_path / "m", "libuser.so", needs=[outside], rpath=str(outside.parent), new_dtags=False)
    found = installed(wheel(tmp_path, {"minitorch/lib/libuser.so": user.read_bytes()}, TAG))
    assert str(outside) in found["foreign-library"]


def test_good_wheel_installs_imports_and_loads_cold(tmp_path: Path) -> None:
    assert judged(tmp_path, b"") == set()


def test_library_that_cannot_reach_its_needs_does_not_load_cold(tmp_path: Path) -> None:
    assert {"closure", "cold-load"} <= judged(tmp_path, b"", rpath="$ORIGIN/../elsewhere")


def test_package_that_raises_does_not_import(tmp_path: Path) -> None:
    assert judged(tmp_path, b"raise RuntimeError('no card')") == {"import"}
