"""The scripts of docker/ for real: keys by fingerprint, and linters over every Dockerfile and script."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_wheels.build.image import DOCKER

pytestmark = pytest.mark.integration


@pytest.fixture
def gnupg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed")
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    return home


def make_key(file: Path, *options: str, expires: str = "1y") -> str:
    """A key of its own in ``file``; returns its fingerprint."""
    name = f"{file.stem} <{file.stem}@example.org>"
    base = ["gpg", "--batch", "--quiet", *options]
    subprocess.run([*base, "--passphrase", "", "--quick-gen-key", name, "rsa2048", "sign", expires], check=True)
    subprocess.run(["gpg", "--batch", "--armor", "--output", str(file), "--export", name], check=True)
    shown = subprocess.run(
        ["gpg", "--show-keys", "--with-colons", str(file)], capture_output=True, text=True, check=True
    )
    found = re.search(r"^fpr:+(\w+):", shown.stdout, re.MULTILINE)
    assert found
    return found[1]


def trust(file: Path, fingerprint: str, keyring: Path) -> subprocess.CompletedProcess[str]:
    argv = ["sh", str(DOCKER / "trusted-key.sh"), str(file), fingerprint, str(keyring)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_a_key_is_taken_by_its_fingerprint_and_its_end_is_said(gnupg: Path, tmp_path: Path) -> None:
    fingerprint = make_key(tmp_path / "vendor.asc")
    done = trust(tmp_path / "vendor.asc", fingerprint, tmp_path / "rings" / "vendor.gpg")
    assert done.returncode == 0, done.stderr
    assert "expires on 20" in done.stdout
    assert (tmp_path / "rings" / "vendor.gpg").stat().st_size > 100


def test_another_key_than_the_pinned_one_is_refused(gnupg: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "other.asc")
    done = trust(tmp_path / "other.asc", "0" * 40, tmp_path / "ring.gpg")
    assert done.returncode == 1
    assert "not 0000" in done.stderr
    assert not (tmp_path / "ring.gpg").exists()


def test_a_key_that_expired_is_refused(gnupg: Path, tmp_path: Path) -> None:
    old = ("--faked-system-time", "20200101T000000")
    fingerprint = make_key(tmp_path / "old.asc", *old, expires="1d")
    done = trust(tmp_path / "old.asc", fingerprint, tmp_path / "ring.gpg")
    assert done.returncode == 1
    assert "has expired" in done.stderr


SCRIPTS = [*sorted(DOCKER.glob("*.sh")), DOCKER.parent / "rocm_wheels" / "build" / "launch" / "hipcc"]


@pytest.mark.parametrize(
    ("linter", "file"),
    [
        *(("hadolint", path) for path in sorted(DOCKER.glob("*.Dockerfile"))),
        *(("shellcheck", path) for path in SCRIPTS),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_linter_has_nothing_to_say(linter: str, file: Path) -> None:
    found = shutil.which(linter, path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    if found is None:
        pytest.skip(f"{linter} is not installed (dependency group lint)")
    done = subprocess.run([found, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
