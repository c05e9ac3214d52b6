"""What the check script finds in an environment."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from rocm_wheels.publish import verify_env
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


def test_a_torch_without_hip_is_found(site: Path, tmp_path: Path) -> None:
    version = b"__version__ = '2.6.0'\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n"
    install(site, make_wheel(tmp_path, name="torch", version="2.6.0", files={"torch/version.py": version}))
    assert problems({"torch": "2.6.0"}) == ["torch 2.6.0 was built without ROCm"]


def test_a_base_in_another_directory_than_its_framework_is_found(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed for all users first, the framework for one: pip is content, the loader is not."""
    system = tmp_path / "system"
    system.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), str(system)])
    pin = "rocm-layers-core==5.7+b1"
    install(site, make_wheel(tmp_path, requires=[pin]))
    install(system, make_wheel(tmp_path, name="rocm-layers-core", version="5.7+b1", files={"_rocm_layers_core/x": b""}))
    (found,) = problems(EXPECTED)
    assert found.startswith(f"minitorch lies in {site}, its base rocm-layers-core in {system}")
    install(site, make_wheel(tmp_path, name="rocm-layers-core", version="5.7+b1", files={"_rocm_layers_core/x": b""}))
    assert problems(EXPECTED) == []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a processor and an RX 6800, as the kernel driver shows them."""
    nodes = tmp_path / "nodes"
    for node, version in enumerate((0, 100300)):
        (nodes / str(node)).mkdir(parents=True)
        (nodes / str(node) / "properties").write_text(f"simd_count 8\ngfx_target_version {version}\n")
    monkeypatch.setattr(verify_env, "_KFD", nodes)
    return nodes


def code(*archs: str) -> bytes:
    return b"\0".join(b"hipv4-amdgcn-amd-amdhsa--" + arch.encode() for arch in archs)


def test_the_gpu_of_this_machine_is_compared_with_every_library(machine: Path, site: Path, tmp_path: Path) -> None:
    files = {"m/a.so": code("gfx1030", "gfx90a"), "m/b.so": code("gfx1030"), "m/c.so": b"no device code"}
    install(site, make_wheel(tmp_path, files=files))
    assert verify_env.gpus(EXPECTED) == [(True, "GPU gfx1030: served")]
    (machine / "1" / "properties").write_text("gfx_target_version 90010\n")
    assert problems(EXPECTED) == ["GPU gfx90a: no code for it, there is code for gfx1030"]


def test_compressed_code_is_not_judged(machine: Path, site: Path, tmp_path: Path) -> None:
    install(site, make_wheel(tmp_path, files={"m/a.so": b"CCOB"}))
    ((served, text),) = verify_env.gpus(EXPECTED)
    assert served and "cannot be read" in text
    assert problems(EXPECTED) == []


def test_data_that_an_extra_would_bring_is_named(machine: Path, site: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"m/a.so": code("gfx1030")}, extras=["gfx1030", "gfx1100"])
    install(site, wheel)
    install(site, make_wheel(tmp_path, name="rocm-layers-device-gfx1100", version="1", files={"_r/x": b""}))
    assert problems(EXPECTED) == ["GPU gfx1030: its data is not installed: pip install 'minitorch[gfx1030]'"]


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
