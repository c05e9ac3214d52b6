"""Our series on the real source of PyTorch 2.6.0, which is fetched from Debian's archive."""

from __future__ import annotations

import subprocess

import pytest

from rocm_wheels import source
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.release import load_matrix

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> source.Checkout:
    settings = Settings()
    plan = source.plan_checkout(load_matrix().release("pytorch-2.6.0"), settings=settings)
    dest = tmp_path_factory.mktemp("pytorch") / "src"
    return source.prepare(plan, dest, settings=settings, console=Console(quiet=True))


def test_every_patch_applies_to_the_pinned_source(checkout: source.Checkout) -> None:
    assert checkout.patches
    assert {status.patch.name: status.state for status in checkout.patches if status.state != "applies"} == {}


def test_the_patched_tree_has_the_series_already(checkout: source.Checkout) -> None:
    """In reverse and last to first, as git undoes it: nothing of a patch was lost to a later one."""
    for status in reversed(checkout.patches):
        argv = ["git", "apply", "--reverse", str(status.patch.path)]
        done = subprocess.run(argv, cwd=checkout.path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_version_is_decided_by_the_build_not_by_debian(checkout: source.Checkout) -> None:
    assert (checkout.path / "version.txt").read_text("utf-8").strip().startswith("2.6.0a0")
    assert not (checkout.path / "debian").exists()
