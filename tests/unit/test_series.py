"""New patches from changed trees, and series that move to another tree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import PatchFailed, SubmoduleBroken, UsageError
from rocm_wheels.release import Source
from rocm_wheels.source import Patch, plan_checkout, prepare
from rocm_wheels.source.patches import apply, classify, find_patches
from rocm_wheels.source.series import new_patch, refresh
from tests.unit.test_patch_headers import problems
from tests.unit.test_source import commit, git, make_archive, release, repository

CONSOLE = Console(quiet=True)
LINES = "".join(f"line {n}\n" for n in range(1, 21))
SOURCE = Source(kind="directory", path="tests/unit")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a submodule and a submodule of that, made once."""
    folder = tmp_path_factory.mktemp("template")
    repository(folder / "leaf", {"l.txt": LINES})
    repository(folder / "sub", {"s.txt": LINES})
    git("submodule", "--quiet", "add", "../leaf", "leaf", cwd=folder / "sub")
    commit(folder / "sub", {})
    repository(folder / "upstream", {"a.txt": LINES, "b.txt": LINES, "crlf.txt": LINES.replace("\n", "\r\n")})
    git("submodule", "--quiet", "add", "../sub", "third_party/sub", cwd=folder / "upstream")
    commit(folder / "upstream", {})
    git("clone", "-q", "--recurse-submodules", str(folder / "upstream"), str(folder / "tree"), cwd=folder)
    return folder / "tree"


@pytest.fixture
def tree(tmp_path: Path, template: Path) -> Path:
    shutil.copytree(template, tmp_path / "fresh", symlinks=True)
    return Path(shutil.copytree(template, tmp_path / "tree", symlinks=True))


def make(title: str, tree: Path, settings: Settings, source: Source = SOURCE) -> Path:
    root = tree.parent / "patches"
    plan = plan_checkout(release(source), settings=settings, patches=root)
    return new_patch(title, tree, plan=plan, settings=settings, console=CONSOLE, root=root)


def edit(path: Path, old: str, new: str) -> None:
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode(), 1))


def snapshot(tree: Path) -> dict[str, bytes]:
    files = (p for p in tree.rglob("*") if p.is_file() and ".git" not in p.parts and p.name != ".git")
    return {str(p.relative_to(tree)): p.read_bytes() for p in files}


def pristine(tree: Path) -> Path:
    return tree.with_name("fresh")


def series(tree: Path) -> tuple[Patch, ...]:
    return find_patches(release(SOURCE), tree.parent / "patches")


def test_a_changed_tree_becomes_the_next_patch_with_a_header_to_fill_in(tree: Path, settings: Settings) -> None:
    edit(tree / "a.txt", "line 10\n", "line ten\n")
    before = snapshot(tree)
    path = make("Count in words!", tree, settings)
    assert snapshot(tree) == before
    assert path.name == "0001-count-in-words.patch"
    assert problems(path) == ["no Why", "no Link", "no Tested"]
    filled = path.read_text()
    for field in ("Why:", "Link:", "Tested:"):
        filled = filled.replace(f"{field}\n", f"{field} it was\n")
    path.write_text(filled)
    assert problems(path) == []
    fresh = pristine(tree)
    assert [s.state for s in classify(series(tree), fresh)] == ["applies"]


def test_submodules_new_removed_and_binary_files_arrive(tree: Path, settings: Settings) -> None:
    edit(tree / "third_party/sub/s.txt", "line 3\n", "line three\n")
    edit(tree / "third_party/sub/leaf/l.txt", "line 3\n", "line three\n")
    (tree / "third_party/sub/new").mkdir()
    (tree / "third_party/sub/new/d\u00e9j\u00e0 vu.bin").write_bytes(bytes(range(256)))
    (tree / "b.txt").unlink()
    (tree / "a.txt").chmod(0o755)
    make("Everything", tree, settings)
    fresh = pristine(tree)
    apply(series(tree), fresh)
    assert snapshot(fresh) == snapshot(tree)
    assert (fresh / "a.txt").stat().st_mode & 0o100


@pytest.mark.parametrize("on_the_tree", [True, False])
def test_a_second_patch_holds_nothing_of_the_first(tree: Path, settings: Settings, on_the_tree: bool) -> None:
    edit(tree / "a.txt", "line 10\n", "line ten\n")
    make("First", tree, settings)
    if not on_the_tree:
        git("checkout", "-q", "a.txt", cwd=tree)
    edit(tree / "a.txt", "line 14\n", "line fourteen\n")
    edit(tree / "crlf.txt", "line 2\r\n", "line two\r\n")
    second = make("Second", tree, settings)
    assert second.name == "0002-second.patch"
    assert b"+line ten" not in second.read_bytes()
    assert b"+line two\r\n" in second.read_bytes()
    fresh = pristine(tree)
    apply(series(tree), fresh)
    assert b"line ten\n" in (fresh / "a.txt").read_bytes()
    assert b"line fourteen\n" in (fresh / "a.txt").read_bytes()
    assert (fresh / "crlf.txt").read_bytes() == (tree / "crlf.txt").read_bytes()


def test_a_second_patch_may_change_lines_of_the_first_again(tree: Path, settings: Settings) -> None:
    edit(tree / "a.txt", "line 10\n", "line ten\n")
    make("First", tree, settings)
    edit(tree / "a.txt", "line ten\n", "line X\n")
    edit(tree / "b.txt", "line 1\n", "line one\n")
    make("Second", tree, settings)
    fresh = pristine(tree)
    apply(series(tree), fresh)
    assert snapshot(fresh) == snapshot(tree)


def test_a_moved_submodule_is_no_patch(tree: Path, settings: Settings) -> None:
    commit(tree / "third_party/sub", {"s.txt": "moved\n"})
    with pytest.raises(SubmoduleBroken, match="third_party/sub is at"):
        make("Moved", tree, settings)


def test_a_tree_that_git_gave_other_line_ends_is_refused(tree: Path, settings: Settings) -> None:
    git("config", "core.autocrlf", "true", cwd=tree)
    (tree / "a.txt").unlink()
    git("checkout", "-q", "a.txt", cwd=tree)
    edit(tree / "a.txt", "line 3\r\n", "line three\r\n")
    with pytest.raises(PatchFailed, match=r"a\.txt has CRLF"):
        make("Line ends", tree, settings)


@pytest.mark.parametrize("title", ["", "!!", "two\nlines"])
def test_a_title_that_gives_no_name_is_refused(tree: Path, settings: Settings, title: str) -> None:
    with pytest.raises(UsageError):
        make(title, tree, settings)


def test_a_tree_without_changes_gives_no_patch(tree: Path, settings: Settings) -> None:
    with pytest.raises(UsageError, match="no changes"):
        make("Nothing", tree, settings)
    assert not (tree.parent / "patches").exists()


def test_a_tree_that_was_laid_here_is_compared_with_its_source(tmp_path: Path, settings: Settings) -> None:
    archive = make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": LINES, "demo-1/b.txt": LINES})
    source = Source(kind="archive", archives=(archive,))
    root = tmp_path / "patches"
    plan = plan_checkout(release(source), settings=settings, patches=root)
    tree = prepare(plan, tmp_path / "laid", settings=settings, console=CONSOLE).path
    edit(tree / "b.txt", "line 3\n", "line three\n")
    (tree / "build").mkdir()
    (tree / "build" / "left.o").touch()
    path = make("Laid", tree, settings, source)
    assert path.read_bytes().count(b"diff --git") == 1
    assert [s.state for s in classify(find_patches(release(source), root), tree)] == ["already applied"]


def two_patches(tree: Path, settings: Settings) -> None:
    edit(tree / "a.txt", "line 5\n", "line five\n")
    make("First", tree, settings)
    edit(tree / "b.txt", "line 15\n", "line fifteen\n")
    make("Second", tree, settings)


def test_a_series_that_fits_stays_as_it_is(tree: Path, settings: Settings) -> None:
    two_patches(tree, settings)
    before = snapshot(tree.parent / "patches")
    assert [r.state for r in refresh(series(tree), pristine(tree))] == ["unchanged", "unchanged"]
    assert snapshot(tree.parent / "patches") == before


def test_a_series_moves_to_a_tree_where_lines_moved(tree: Path, settings: Settings) -> None:
    two_patches(tree, settings)
    fresh = pristine(tree)
    edit(fresh / "b.txt", "line 1\n", "new\nnew\nline 1\n")
    before = snapshot(fresh)
    assert [r.state for r in refresh(series(tree), fresh)] == ["unchanged", "refreshed"]
    assert snapshot(fresh) == before
    (_, second) = classify(series(tree), fresh)
    assert (second.state, second.reason) == ("applies", "")
    assert second.patch.path.read_text().startswith("Second\n\nWhy:")


def test_a_patch_that_is_upstream_is_said_to_be(tree: Path, settings: Settings) -> None:
    two_patches(tree, settings)
    fresh = pristine(tree)
    edit(fresh / "a.txt", "line 5\n", "line five\n")
    assert [r.state for r in refresh(series(tree), fresh)] == ["already applied", "unchanged"]


def test_a_change_that_is_there_already_is_not_made_twice(tree: Path, settings: Settings) -> None:
    (tree / "a.txt").write_text("x\n" * 30)
    commit(tree, {})
    edit(tree / "a.txt", "x\nx\n", "x\nnew\nx\n")
    make("Insert", tree, settings)
    before = snapshot(tree.parent / "patches")
    assert [r.state for r in refresh(series(tree), tree)] == ["already applied"]
    assert snapshot(tree.parent / "patches") == before


def test_a_change_that_the_merge_finds_upstream_leaves_no_empty_patch(tree: Path, settings: Settings) -> None:
    edit(tree / "a.txt", "line 5\n", "line five\n")
    make("First", tree, settings)
    fresh = pristine(tree)
    edit(fresh / "a.txt", "line 5\n", "line five\n")
    edit(fresh / "a.txt", "line 7\n", "line seven\n")
    before = snapshot(tree.parent / "patches")
    assert [r.state for r in refresh(series(tree), fresh)] == ["already applied"]
    assert snapshot(tree.parent / "patches") == before


def test_changed_context_is_merged_with_the_help_of_the_trees_objects(tree: Path, settings: Settings) -> None:
    two_patches(tree, settings)
    fresh = pristine(tree)
    edit(fresh / "a.txt", "line 7\n", "line seven\n")
    assert [s.state for s in classify(series(tree), fresh)] == ["fails", "applies"]
    assert [r.state for r in refresh(series(tree), fresh)] == ["refreshed", "unchanged"]
    assert [s.state for s in classify(series(tree), fresh)] == ["applies", "applies"]


def test_the_first_conflict_ends_it_with_the_patches_before_it_done(tree: Path, settings: Settings) -> None:
    two_patches(tree, settings)
    edit(tree / "b.txt", "line 2\n", "line two\n")
    make("Third", tree, settings)
    fresh = pristine(tree)
    edit(fresh / "a.txt", "line 1\n", "new\nline 1\n")
    edit(fresh / "b.txt", "line 15\n", "something else\n")
    before = {p.path.name: p.path.read_bytes() for p in series(tree)}
    done = []
    with pytest.raises(PatchFailed, match="base/0002-second.patch conflicts"):
        for each in refresh(series(tree), fresh):
            done.append(each.state)
    assert done == ["refreshed"]
    after = {p.path.name: p.path.read_bytes() for p in series(tree)}
    assert [name for name in after if after[name] != before[name]] == ["0001-first.patch"]


def test_a_patch_that_fails_names_the_commit_that_changed_its_lines(tree: Path, settings: Settings) -> None:
    edit(tree / "third_party/sub/s.txt", "line 10\n", "line ten\n")
    make("Count", tree, settings)
    fresh = pristine(tree)
    sub = fresh / "third_party/sub"
    found = commit(sub, {"s.txt": LINES.replace("line 10\n", "line X\n")})
    (status,) = classify(series(tree), fresh)
    assert status.state == "fails"
    assert f"last changed by {found[:7]}" in status.reason
