"""``torch-rocm``: who requires ``torch`` gets it through a shim, or is told why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import UsageError
from rocm_wheels.publish import publish
from rocm_wheels.publish.shim import make_shim
from tests.publish_wheels import make_wheel, sha256

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    files = {"torch/__init__.py": b"hip = '5.7'\n"}
    return make_wheel(tmp_path / "dist", "torch-rocm", "2.5.0+rocm5.7", files=files, extras=["opt-einsum"])


def test_a_dependant_of_the_plain_name_gets_the_renamed_wheel(renamed: Path, tmp_path: Path) -> None:
    wheels = [renamed, make_shim(renamed, "torch", tmp_path / "dist"), visx(tmp_path)]
    report = publish(wheels, f"dir:{tmp_path / 'static'}", settings=Settings(), console=CONSOLE)
    assert report.warnings == ()
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", environment], check=True)
    python = str(environment / "bin" / "python")
    bare = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"}
    install = [python, "-m", "pip", "install", "-q", "--index-url", report.index_url, "visx"]
    subprocess.run(install, check=True, env=bare)
    subprocess.run([python, "-m", "pip", "check"], check=True, env=bare, capture_output=True)
    said = subprocess.run([python, "-c", "import torch; print(torch.hip)"], capture_output=True, text=True, env=bare)
    assert said.stdout == "5.7\n"


def visx(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "dist", "visx", "0.20", requires=["torch ==2.5.0", "torch[opt-einsum]"])


def test_without_a_shim_publishing_warns_and_names_the_command(renamed: Path, tmp_path: Path) -> None:
    report = publish([renamed], f"dir:{tmp_path / 'static'}", settings=Settings(), console=CONSOLE)
    (warning,) = report.warnings
    assert "torch-rocm does not satisfy a requirement of torch" in warning
    assert f"invoke shim {renamed} torch" in warning


def test_the_shim_says_what_it_is_and_is_the_same_every_time(renamed: Path, tmp_path: Path) -> None:
    one, two = (make_shim(renamed, "torch", tmp_path / folder) for folder in ("one", "two"))
    assert sha256(one) == sha256(two)
    assert one.name == "torch-2.5.0+rocm5.7-py3-none-any.whl"


@pytest.mark.parametrize(("name", "reason"), [("torch_rocm", "needs no shim"), ("jax", "has no package jax")])
def test_a_shim_that_would_lie_is_refused(name: str, reason: str, renamed: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=reason):
        make_shim(renamed, name, tmp_path)
