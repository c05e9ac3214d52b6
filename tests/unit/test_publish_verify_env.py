"""What the check script finds in an environment."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from rocm_wheels.publish.verify_env import main, problems, read_expected
from tests.publish_wheels import make_wheel

EXPECTED = {"minitorch": "0.1+rocm5.7"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with nothing in it."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def install(site: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def test_a_published_environment_has_no_problems(site: Path, tmp_path: Path) -> None:
    install(site, make_wheel(tmp_path))
    assert problems(EXPECTED) == []


def test_an_absent_distribution_is_named(site: Path) -> None:
    assert problems(EXPECTED) == ["minitorch 0.1+rocm5.7 is not installed"]


def test_a_swapped_version_is_named(site: Path, tmp_path: Path) -> None:
    install(site, make_wheel(tmp_path, version="0.2"))
    assert problems(EXPECTED) == ["minitorch is 0.2, not 0.1+rocm5.7: another install has swapped it"]


def test_nvidia_packages_are_named(site: Path, tmp_path: Path) -> None:
    install(site, make_wheel(tmp_path))
    install(site, make_wheel(tmp_path, name="nvidia-cublas", version="1"))
    (found,) = problems(EXPECTED)
    assert "nvidia-cublas" in found


def test_overwritten_files_of_a_renamed_twin_are_found(site: Path, tmp_path: Path) -> None:
    install(site, make_wheel(tmp_path))
    install(site, make_wheel(tmp_path, name="visx", files={"minitorch/__init__.py": b"cuda = True\n"}))
    found = problems(EXPECTED)
    assert any("it was overwritten" in text for text in found)
    assert any("minitorch and visx both own minitorch/" in text for text in found)


def test_a_removed_file_is_found(site: Path, tmp_path: Path) -> None:
    install(site, make_wheel(tmp_path))
    (site / "minitorch/__init__.py").unlink()
    assert problems(EXPECTED) == ["minitorch: minitorch/__init__.py is missing"]


def test_two_hip_runtimes_are_found(site: Path, tmp_path: Path) -> None:
    for name in ("minitorch", "other"):
        install(site, make_wheel(tmp_path, name=name, files={f"{name}/lib/libamdhip64.so.5": b"elf"}))
    (found,) = problems(EXPECTED)
    assert found.startswith("2 copies of the HIP runtime")


def test_pins_are_read_from_a_requirements_file() -> None:
    text = "--index-url http://x/simple/\nminitorch==0.1+rocm5.7 \\\n    --hash=sha256:00\nnumpy==2.1 ; a\n"
    assert read_expected(text) == {"minitorch": "0.1+rocm5.7", "numpy": "2.1"}


def test_the_script_ends_with_1_on_problems(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = tmp_path / "requirements.txt"
    pins.write_text("minitorch==0.1+rocm5.7\n")
    monkeypatch.setattr(sys, "argv", ["verify_env.py", str(pins)])
    assert main() == 1
    assert "not installed" in capsys.readouterr().out
    install(site, make_wheel(tmp_path))
    assert main() == 0
