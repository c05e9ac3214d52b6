"""The release data held against an index: real pip, wheels made here."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.console import Console
from rocm_wheels.errors import IndexSilent
from rocm_wheels.release import Cell, Release, drift, load_matrix

pytestmark = pytest.mark.integration

COMMIT = "5811a8d7da873dd699ff6687092c225caffcf1bb"


def make_wheel(folder: Path, name: str, tag: str, requires: list[str], files: dict[str, bytes] | None = None) -> Path:
    distribution, version = name.split("-")
    info = f"{distribution}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\nRequires-Python: >=3.10\n"
    metadata += "".join(f"Requires-Dist: {r}\n" for r in requires)
    path = folder / f"{name}-cp310-cp310-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in (files or {}).items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp310-cp310-{tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of wheels that pip takes instead of an index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    yield folder


def row(**cells: str | None) -> Release:
    release = load_matrix().release("2.9.1")
    assert release.facts
    plain = {"vision": None, "audio": None, **cells}
    changed: dict[str, Any] = {
        k: Cell(value=v, source="test") if v else Cell[str](note="nobody knows") for k, v in plain.items()
    }
    return dataclasses.replace(release, facts=dataclasses.replace(release.facts, **changed))


def publish(index: Path, *, commit: str = COMMIT, triton: str = 'triton==3.5.1; platform_system == "Linux"') -> None:
    make_wheel(index, "torch-2.9.1", "manylinux_2_28_x86_64", [triton, "x; extra == 'y'"])
    version = f"__version__ = '2.9.1'\ngit_version = '{commit}'\n".encode()
    make_wheel(index, "torch-2.9.1", "macosx_11_0_arm64", [], {"torch/version.py": version})


def states(release: Release) -> dict[str, str]:
    return {d.column: d.state for d in drift.check([release], console=Console(quiet=True))}


def test_what_the_wheels_say_is_the_same(index: Path) -> None:
    publish(index)
    assert states(row()) == {"requires_python": "same", "triton": "same", "commit": "same"}


def test_another_commit_triton_or_python_window_differs(index: Path) -> None:
    publish(index, commit="0" * 40, triton="triton==3.5.0")
    assert states(row(requires_python=">=3.9")) == {
        "requires_python": "differs",
        "triton": "differs",
        "commit": "differs",
    }


def test_a_fact_that_nobody_knew_is_new(index: Path) -> None:
    publish(index)
    assert states(row(triton=None))["triton"] == "new"


def test_companions_must_ask_for_this_very_release_or_for_any(index: Path) -> None:
    publish(index)
    make_wheel(index, "torchvision-0.24.1", "manylinux_2_28_x86_64", ["torch>=2.9.1"])
    make_wheel(index, "torchvision-0.24.0", "manylinux_2_28_x86_64", ["torch==2.9.0"])
    make_wheel(index, "torchaudio-2.9.1", "manylinux_2_28_x86_64", [])
    assert states(row(vision="0.24.1"))["vision"] == "same"
    assert states(row(vision="0.24.0", audio="2.9.1")) | {"commit": ""} == {
        "requires_python": "same",
        "triton": "same",
        "commit": "",
        "vision": "differs",
        "audio": "same",
    }
    assert states(row(vision="0.99"))["vision"] == "not there"


def test_a_release_that_the_index_does_not_have_is_said_to_be_missing(index: Path) -> None:
    (found,) = drift.check([row()], console=Console(quiet=True))
    assert found.state == "not there"
    assert "torch==2.9.1" in found.found


def test_a_wheel_without_version_file_or_server_is_an_error_of_its_own(index: Path) -> None:
    make_wheel(index, "torch-2.9.1", "macosx_11_0_arm64", [])
    report = drift.wheel("torch==2.9.1", drift.MAC, "3.10")
    with pytest.raises(IndexSilent, match=r"torch/version\.py of torch-2\.9\.1"):
        drift.commit(report)
