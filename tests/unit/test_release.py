from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from rocm_wheels import gpu
from rocm_wheels.errors import MatrixError, UnknownArch, UnknownImage, UnknownPython, UnknownRelease
from rocm_wheels.release import load_matrix
from rocm_wheels.release.matrix import DATA


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text("utf-8"), count=1, flags=re.MULTILINE)
    assert count == 1
    path.write_text(text, "utf-8")


def test_a_release_is_found_by_name_version_and_framework() -> None:
    matrix = load_matrix()
    assert matrix.release("minitorch") is matrix.release("minitorch-0.1.0")
    assert matrix.release("2.6.0").name == "pytorch-2.6.0"


def test_unknown_release_names_the_nearest() -> None:
    with pytest.raises(UnknownRelease, match="pytorch-2.6.0"):
        load_matrix().release("pytorch-2.6")


def test_unknown_image_and_python_say_what_there_is() -> None:
    matrix = load_matrix()
    release = matrix.release("minitorch")
    with pytest.raises(UnknownImage, match="debian-trixie"):
        matrix.image("debian-trixy", release)
    image = matrix.image("debian-trixie", release)
    with pytest.raises(UnknownPython, match=r"3\.13"):
        matrix.check_python("3.12", release, image)
    with pytest.raises(UnknownPython, match="carries no Python 3.9"):
        matrix.check_python("3.9", matrix.release("2.6.0"), image)


def test_every_row_says_where_it_comes_from() -> None:
    matrix = load_matrix()
    assert all(r.origin and r.source.origin for r in matrix.releases)
    assert all(i.origin for i in matrix.images.values())


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "message"),
    [
        ("minitorch.toml", r"^version = .*", "", "missing version"),
        ("minitorch.toml", r'^version = ".*"', "version = 1", "wrong type"),
        ("minitorch.toml", r"^origin", "orgin", "unknown key 'orgin'"),
        ("minitorch.toml", r'^kind = "directory"', 'kind = "svn"', "'svn'"),
        ("minitorch.toml", r'^kind = "directory"', 'kind = "git"', "needs url, commit"),
        ("minitorch.toml", r"^images = .*", 'images = ["debian-trixi"]', "did you mean debian-trixie"),
        ("minitorch.toml", r"^archs = .*", "archs = []", "empty"),
        ("minitorch.toml", r"^pythons = .*", 'pythons = ["three"]', "not a Python version"),
        ("pytorch.toml", r'^sha256 = ".*"', 'sha256 = "abc"', "not a sha256"),
        ("images.toml", r"^glibc = .*", "", "missing glibc"),
        ("images.toml", r"^\[debian", "[[debian", "images.toml"),
    ],
)
def test_bad_row_is_refused_with_its_place(data: Path, file: str, pattern: str, replacement: str, message: str) -> None:
    edit(data / file, pattern, replacement)
    with pytest.raises(MatrixError, match=re.escape(message)):
        load_matrix(data)


def test_two_rows_for_one_release_are_refused(data: Path) -> None:
    shutil.copy(data / "minitorch.toml", data / "other.toml")
    with pytest.raises(MatrixError, match="two rows"):
        load_matrix(data)


def test_arch_list_is_checked_ordered_and_without_repeats() -> None:
    assert gpu.parse_archs("gfx1100; gfx90a:xnack-,gfx1100") == ("gfx1100", "gfx90a:xnack-")


@pytest.mark.parametrize("text", ["", " ; "])
def test_empty_arch_list_is_refused(text: str) -> None:
    with pytest.raises(UnknownArch, match="empty"):
        gpu.parse_archs(text)


@pytest.mark.parametrize("text", ["gfx1037", "sm_90", "gfx90a:fast+", "gfx90a:xnack"])
def test_unknown_arch_or_feature_is_refused(text: str) -> None:
    with pytest.raises(UnknownArch):
        gpu.parse_archs(text)
