from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rocm_wheels import gpu
from rocm_wheels.config import Settings
from rocm_wheels.errors import Impossible, MatrixError, UnknownArch, UnknownFact, UnknownImage, UnknownRelease
from rocm_wheels.release import Build, Release, load_matrix
from rocm_wheels.release.load import DATA
from rocm_wheels.release.possible import Combination, check, nearest_possible
from rocm_wheels.source import plan_checkout


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
    with pytest.raises(UnknownRelease, match=r"pytorch-2\.6\.0"):
        load_matrix().release("pytorch-2.6")


def test_unknown_image_names_the_nearest() -> None:
    with pytest.raises(UnknownImage, match="debian-trixie"):
        load_matrix().image("debian-trixy")


def combination(release: str, image: str, python: str, *archs: str) -> Combination:
    matrix = load_matrix()
    return Combination(release=matrix.release(release), image=matrix.image(image), python=python, archs=archs)


def test_a_possible_combination_passes() -> None:
    check(load_matrix(), combination("2.6.0", "debian-trixie", "3.13", "gfx1032", "gfx90a:xnack-"))


@pytest.mark.parametrize(
    ("release", "python", "archs", "reason", "nearest"),
    [
        ("2.6.0", "3.14", (), "does not support Python 3.14", "build-3.13 -- --release pytorch-2.6.0"),
        ("2.6.0", "3.12", (), "carries no Python 3.12", "build-3.1[13] -- --release pytorch-2.6.0"),
        (
            "2.9.1",
            "3.13",
            (),
            r"no recipe for pytorch-2\.9\.1 .*ROCm 6\.3, 6\.4",
            "build-3.13 -- --release pytorch-2",
        ),
        ("2.6.0", "3.13", ("gfx1201",), "does not know gfx1201", "build-3.13 -- --release pytorch-2.6.0"),
        ("minitorch", "3.12", (), "carries no Python 3.12", "build-3.1[13] -- --release minitorch"),
    ],
)
def test_an_impossible_combination_says_why_and_offers_the_nearest(
    release: str, python: str, archs: tuple[str, ...], reason: str, nearest: str
) -> None:
    with pytest.raises(Impossible, match=reason) as caught:
        check(load_matrix(), combination(release, "debian-trixie", python, *archs))
    assert re.search(nearest, caught.value.remedy)


def test_every_reason_is_said_at_once() -> None:
    with pytest.raises(Impossible) as caught:
        check(load_matrix(), combination("2.9.1", "debian-trixie", "3.12", "gfx1201"))
    assert caught.value.message.count("\n  - ") == 3


@pytest.mark.parametrize("release", [r.name for r in load_matrix().releases])
def test_what_is_offered_is_possible(release: str) -> None:
    matrix = load_matrix()
    for image in matrix.images:
        for python in ("3.7", "3.13", "3.14t", "3.15"):
            wish = combination(release, image, python, "gfx1201", "gfx1030")
            found = nearest_possible(matrix, wish)
            assert found
            check(matrix, found)


def test_a_target_that_the_compiler_does_not_know_gives_way_to_one_whose_code_the_card_runs() -> None:
    matrix = load_matrix()
    old = {n: dataclasses.replace(i, compiles=("gfx900", "gfx1030")) for n, i in matrix.images.items()}
    matrix = dataclasses.replace(matrix, images=old)
    image = matrix.image("debian-trixie")
    wish = Combination(release=matrix.release("2.6.0"), image=image, python="3.13", archs=("gfx1032",))
    found = nearest_possible(matrix, wish)
    assert found
    assert found.archs == ("gfx1030",)


def test_every_row_says_where_it_comes_from() -> None:
    matrix = load_matrix()
    assert all(r.origin and r.source.origin for r in matrix.releases)
    assert all(i.origin for i in matrix.images.values())


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "message"),
    [
        ("builds/minitorch.toml", r"^version = .*", "", "missing recipe, source, version"),
        ("builds/minitorch.toml", r'^version = ".*"', "version = 1", "wrong type"),
        ("builds/minitorch.toml", r"^origin", "orgin", "unknown key 'orgin'"),
        ("builds/minitorch.toml", r'kind = "directory"', 'kind = "svn"', "'svn'"),
        ("builds/minitorch.toml", r'kind = "directory"', 'kind = "git"', "needs url, commit"),
        ("builds/minitorch.toml", r"^images = .*", 'images = ["debian-trixi"]', "did you mean debian-trixie"),
        ("builds/minitorch.toml", r"^images = .*", 'images = ["debian-trixie", "debian-trixie"]', "two [[build]] rows"),
        ("builds/minitorch.toml", r"^archs = .*", "archs = []", "empty"),
        ("builds/minitorch.toml", r"^pythons = .*", 'pythons = ["three"]', "not a Python version"),
        ("builds/minitorch.toml", r'^recipe = "example"', 'recipe = "exampel"', "did you mean example"),
        ("builds/minitorch.toml", r"^releases = .*", 'releases = ["0.1.0", "0.2.0"]', "unknown release '0.2.0'"),
        ("builds/pytorch.toml", r'^sha256 = ".*"', 'sha256 = "abc"', "not a sha256"),
        ("images.toml", r"^glibc = .*", "", "missing glibc"),
        ("images.toml", r"^\[debian", "[[debian", "images.toml"),
        ("pytorch.toml", r'^"<2\.6" = \{ value = "2\.17"', '"<2.5" = { value = "2.17"', "[glibc]: no key fit 2.5.1"),
        ("pytorch.toml", r'^"<2\.6" = \{ value = "2\.17"', '"<2.7" = { value = "2.17"', "fit 2.6.0; exactly one"),
        ("pytorch.toml", r'^"<2\.6" = \{ value = "2\.17"', '"2.6" = { value = "2.17"', "no version specifier"),
        ("pytorch.toml", r'value = "2\.28"', "value = 2.28", "[glibc] '>=2.6': the value has the wrong type"),
        ("pytorch.toml", r'value = "2\.28", source = "manywheel, abi"', 'value = "2.28"', "the value has no source"),
        (
            "pytorch.toml",
            r'value = "2\.28", source = "manywheel',
            'value = "2.28", source = "manywhel',
            "mean manywheel",
        ),
        ("pytorch.toml", r'\{ value = "2\.28".*', "{ }", "says in `unknown` why"),
        ("pytorch.toml", r"^\[glibc\]", "[libc]", "unknown column 'libc'"),
        ("pytorch.toml", r"^\[glibc\]\n(.*\n)+?\n", "", "the column glibc is missing"),
        ("pytorch.toml", r'^commit|"49444c3e546bf240bed24a101e747422d1f8a0ee"', '"v1.13.1"', "not a full commit id"),
        ("wheels.toml", r"^source = .*", "", "has `rocm` and `source`, or `unknown`"),
        ("pytorch.toml", r"^text = .*", 'txt = ""', "a trap has"),
    ],
)
def test_bad_row_is_refused_with_its_place(data: Path, file: str, pattern: str, replacement: str, message: str) -> None:
    edit(data / file, pattern, replacement)
    with pytest.raises(MatrixError, match=re.escape(message)):
        load_matrix(data)


WITH_FACTS = [r for r in load_matrix().releases if r.facts]


@pytest.mark.parametrize("release", WITH_FACTS, ids=lambda r: r.name)
def test_every_cell_has_a_source_or_says_why_it_is_unknown(release: Release) -> None:
    assert release.facts
    for column, cell in release.facts.cells().items():
        if cell.known:
            assert cell.source, column
        else:
            assert len(cell.note.split()) > 3, column
            with pytest.raises(UnknownFact, match=re.escape(cell.note)):
                cell.require(column)


@pytest.mark.parametrize("release", WITH_FACTS, ids=lambda r: r.name)
def test_values_are_what_they_claim_to_be(release: Release) -> None:
    facts = release.facts
    assert facts
    assert re.fullmatch(r"[0-9a-f]{40}", facts.commit.require("commit"))
    for window in (facts.requires_python, facts.numpy_runtime, facts.cmake, facts.setuptools):
        SpecifierSet(window.value or "")
    lowest = SpecifierSet(facts.requires_python.require("requires_python"))
    assert all(lowest.contains(p.rstrip("t")) for p in release.pythons)
    for rocm in (*facts.rocm.require("rocm"), *(facts.amd_rocm.value or ())):
        Version(rocm)
    for python in release.pythons:
        wanted = [Requirement(text).marker for text in facts.numpy.require("numpy")]
        environment = {"python_version": python.rstrip("t")}
        assert sum(marker is None or marker.evaluate(environment) for marker in wanted) == 1
    assert all(facts.archs_for(rocm) for rocm in facts.rocm.require("rocm"))
    assert all(trap.source for trap in facts.traps)


@pytest.mark.parametrize(("column", "key"), [("commit", "==2.14.1"), ("pythons", ">=2.12"), ("archs", ">=2.13")])
def test_a_build_that_depends_on_an_unknown_fact_says_so(data: Path, column: str, key: str) -> None:
    edit(
        data / "pytorch.toml",
        rf'(\[{column}\]\n(?:[^\[].*\n)*?)"{re.escape(key)}" = .*',
        rf'\1"{key}" = {{ unknown = "nobody read it" }}',
    )
    matrix = load_matrix(data)
    release = matrix.release("2.14.1")
    with pytest.raises(UnknownFact, match="nobody read it"):
        image = next(iter(matrix.images.values()))
        release = dataclasses.replace(
            release, builds=(Build(images=(image.name,), source=release.source, recipe=release.recipe, origin=""),)
        )
        check(matrix, Combination(release=release, image=image, python="3.13", archs=()))
        plan_checkout(release.on(image), settings=Settings())


def test_targets_follow_the_rocm_of_the_image() -> None:
    facts = load_matrix().release("2.14.1").facts
    assert facts
    assert "gfx906" in facts.archs_for("7.2")
    assert "gfx906" not in facts.archs_for("7.14")


def test_a_release_takes_source_and_recipe_from_its_row_for_an_image() -> None:
    matrix = load_matrix()
    release = matrix.release("2.6.0")
    there = release.on(matrix.images["debian-trixie"])
    assert there.source.kind == "debian"
    assert dict(there.recipe.env)["USE_DISTRIBUTED"] == "0"
    assert "gfx942" not in there.archs
    with pytest.raises(Impossible, match="no recipe for image debian-trixie"):
        matrix.release("2.9.1").on(matrix.images["debian-trixie"])


def test_a_release_without_a_row_is_upstreams_commit_and_its_eras_recipe() -> None:
    matrix = load_matrix()
    assert matrix.release("2.9.1").source.commit == "5811a8d7da873dd699ff6687092c225caffcf1bb"
    assert matrix.release("2.9.1").recipe.configure[1] == "setup.py"
    assert "setup.py" not in matrix.release("2.14.1").recipe.configure


def test_wheels_of_others_say_which_rocm_they_need() -> None:
    matrix = load_matrix()
    read = matrix.needs_rocm("tensorflow_rocm", "2.14.0.600")
    assert read
    assert SpecifierSet(read.rocm).contains("6.0.2")
    guessed = matrix.needs_rocm("tensorflow-rocm", "2.13.0.570")
    assert guessed
    assert (guessed.rocm, bool(guessed.unknown)) == ("", True)
    assert matrix.needs_rocm("numpy", "2.0") is None
    assert {w.framework for w in matrix.wheels} == {"TensorFlow", "JAX", "CuPy"}


def test_two_rows_for_one_release_are_refused(data: Path) -> None:
    text = (data / "builds" / "minitorch.toml").read_text("utf-8")
    row = text[text.index("[[release]]") : text.index("[recipe")]
    (data / "builds" / "minitorch.toml").write_text(text + row, "utf-8")
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
