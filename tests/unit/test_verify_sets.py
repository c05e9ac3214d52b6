"""Wheels that are handed out together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.console import Console
from rocm_wheels.verify import VerifyOptions, verify
from rocm_wheels.verify.catalogue import catalogue
from tests.elf_fixtures import bundle, make_library
from tests.wheel_fixtures import make_wheel

ARCHS = ("gfx1030", "gfx1100")


def torch(folder: Path, python: str = "cp311", version: str = "2.6.0+rocm5.7", **more: Any) -> Path:
    """A torch in miniature: one library with device code and its version.py."""
    archs, commit = more.pop("archs", ARCHS), more.pop("commit", "a" * 40)
    needs = [make_library(folder / "m", more.pop("hip", "libamdhip64.so.5"))]
    library = make_library(folder / "m", f"lib{python}.so", bundles=[bundle(archs)], needs=needs)
    files = {
        "torch/version.py": f"__version__ = {version!r}\ngit_version = {commit!r}\nhip = '5.7'\n".encode(),
        "torch/lib/libtorch_hip.so": library.read_bytes(),
    }
    return make_wheel(folder, "torch", version, f"{python}-{python}-linux_x86_64", files, **more)


def vision(
    folder: Path, python: str = "cp311", version: str = "0.21.0+rocm5.7", requires: str = "torch==2.6.0"
) -> Path:
    files = {"torchvision/__init__.py": b""}
    return make_wheel(folder, "torchvision", version, f"{python}-{python}-linux_x86_64", files, requires=[requires])


def found(*wheels: Path) -> dict[str, str]:
    report = verify(wheels, VerifyOptions(only=("set",)), Console(quiet=True))
    return {f.check.id: f.evidence for f in report.set_findings}


def test_matched_set_has_no_findings(tmp_path: Path) -> None:
    both = [make(tmp_path, python) for make in (torch, vision) for python in ("cp311", "cp312")]
    assert found(*both) == {}


def test_wheel_that_one_python_lacks(tmp_path: Path) -> None:
    evidence = found(torch(tmp_path), torch(tmp_path, "cp312"), vision(tmp_path))["set-incomplete"]
    assert "cp312" in evidence
    assert "torch" in evidence


def test_commit_that_differs(tmp_path: Path) -> None:
    evidence = found(torch(tmp_path), torch(tmp_path, "cp312", commit="b" * 40))["set-commit"]
    assert "bbbbbbbbbbbb" in evidence


def test_archs_that_differ(tmp_path: Path) -> None:
    assert "gfx1030:" in found(torch(tmp_path), torch(tmp_path, "cp312", archs=ARCHS[:1]))["set-archs"]


def test_two_rocm_majors(tmp_path: Path) -> None:
    other = torch(tmp_path / "b", "cp312", hip="libamdhip64.so.6")
    assert "ROCm 6" in found(torch(tmp_path / "a"), other)["set-rocm"]


@pytest.mark.parametrize("requires", ["torch==2.5.1", "torch==2.6.0+rocm6.2", "torch>=2.7"])
def test_companion_that_wants_another_torch(tmp_path: Path, requires: str) -> None:
    assert requires in found(torch(tmp_path), vision(tmp_path, requires=requires))["set-requirement"]


def test_requirement_that_no_public_index_has(tmp_path: Path) -> None:
    wheels = torch(tmp_path, requires=["pytorch-triton-rocm==3.2.0"]), vision(tmp_path)
    assert "pytorch-triton-rocm" in found(*wheels)["set-requirement"]


def test_companion_for_another_python_does_not_count(tmp_path: Path) -> None:
    assert "set-requirement" in found(torch(tmp_path, "cp312"), vision(tmp_path))


def test_labels_that_sort_as_text(tmp_path: Path) -> None:
    evidence = found(torch(tmp_path, version="2.6.0+rocm6.2"), torch(tmp_path, version="2.6.0+rocm10.0"))["set-order"]
    assert "resolvers take 'rocm6.2'" in evidence
    assert "rocm10.0 would be the highest" in evidence


def test_file_of_two_distributions(tmp_path: Path) -> None:
    other = make_wheel(tmp_path, "torch-rocm", "2.6.0", "cp311-cp311-linux_x86_64", {"torch/version.py": b""})
    assert "torch/version.py" in found(torch(tmp_path), other)["set-overlap"]


def test_a_need_is_met_by_a_wheel_of_the_set_that_is_pinned(tmp_path: Path) -> None:
    hip = make_library(tmp_path / "m", "libamdhip64.so.5")
    path = "$ORIGIN:$ORIGIN/../../_rocm_layers_core/lib"
    user = make_library(tmp_path / "m", "libuser.so", needs=[hip], rpath=path, new_dtags=False, bundles=[bundle(ARCHS)])
    base = make_wheel(
        tmp_path,
        "rocm-layers-core",
        "5.7+b1",
        "py3-none-linux_x86_64",
        {"_rocm_layers_core/lib/libamdhip64.so.5": hip.read_bytes(), "_rocm_layers_core/licenses/hip.txt": b"MIT"},
    )
    pinned = ["rocm-layers-core==5.7+b1"]
    thin = make_wheel(
        tmp_path,
        "minitorch",
        "1.0+rocm5.7",
        "cp311-cp311-linux_x86_64",
        {"minitorch/lib/libuser.so": user.read_bytes()},
        requires=pinned,
    )
    assert "closure" not in {f.check.id for f in verify([thin, base], VerifyOptions(), Console(quiet=True)).findings}


def test_only_what_was_asked_for_is_reported_and_said_to_be(tmp_path: Path) -> None:
    report = verify([torch(tmp_path)], VerifyOptions(only=("identity", "closure")), Console(quiet=True))
    groups = {catalogue()[f.check.id].group for f in report.findings}
    assert groups <= {"identity", "closure"}
    assert any("--only" in text for text in report.wheels[0].skipped)


def test_errors_that_an_allow_let_pass_are_remembered(tmp_path: Path) -> None:
    options = VerifyOptions(allow=("closure",), only=("closure",))
    report = verify([torch(tmp_path)], options, Console(quiet=True))
    assert report.ok
    assert {f.check.id for f in report.allowed} == {"closure"}
    assert report.as_dict()["allowed"][0]["severity"] == "error"
