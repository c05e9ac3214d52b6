from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocm_wheels.errors import PatchFailed, PatchTargetMissing
from rocm_wheels.source import Patch, classify
from rocm_wheels.source.patches import apply

BEFORE = "".join(f"line {n}\n" for n in range(1, 21))
AFTER = BEFORE.replace("line 10\n", "line ten\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.txt").write_text(BEFORE)
    return folder


def make_patch(tmp_path: Path, name: str, old: Mapping[str, str | bytes], new: Mapping[str, str | bytes]) -> Patch:
    """A patch between two directory contents, as git makes it."""
    folder = tmp_path / f"make-{name}"
    folder.mkdir()
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, check=True).stdout

    git("init", "-q")
    for files in (old, new):
        git("rm", "-rqf", "--ignore-unmatch", ".")
        for file, content in files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        git("add", "-A")
        if files is old:
            tree = git("write-tree").decode().strip()
    path = tmp_path / f"{name}.patch"
    path.write_bytes(b"Why: a test\n\n" + git("diff", "--cached", "--binary", "-M", tree))
    return Patch(path=path, phase="base", sha256="")


def snapshot(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in sorted(tree.rglob("*")) if p.is_file()}


def state(patch: Patch, tree: Path) -> tuple[str, str]:
    before = snapshot(tree)
    (found,) = classify([patch], tree)
    assert snapshot(tree) == before
    return found.state, found.reason


def test_patch_that_fits_applies_and_then_is_already_applied(tmp_path: Path, tree: Path) -> None:
    patch = make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER})
    assert state(patch, tree)[0] == "applies"
    apply([patch], tree)
    assert (tree / "src/a.txt").read_text() == AFTER
    assert state(patch, tree)[0] == "already applied"
    before = snapshot(tree)
    apply([patch], tree)
    assert snapshot(tree) == before


def test_second_patch_is_tried_on_what_the_first_leaves(tmp_path: Path, tree: Path) -> None:
    twice = AFTER.replace("line ten", "line X")
    series = [
        make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER}),
        make_patch(tmp_path, "2", {"src/a.txt": AFTER}, {"src/a.txt": twice}),
    ]
    assert [s.state for s in classify(series, tree)] == ["applies", "applies"]
    apply(series, tree)
    assert (tree / "src/a.txt").read_text() == twice


def test_one_bad_patch_leaves_the_tree_untouched(tmp_path: Path, tree: Path) -> None:
    series = [
        make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER}),
        make_patch(tmp_path, "2", {"src/a.txt": BEFORE}, {"src/a.txt": BEFORE.replace("line 10", "other")}),
    ]
    before = snapshot(tree)
    with pytest.raises(PatchFailed, match=r"base/2\.patch: fails: error: patch failed: src/a\.txt"):
        apply(series, tree)
    assert snapshot(tree) == before


def test_changed_context_line_fails_instead_of_being_fuzzed(tmp_path: Path, tree: Path) -> None:
    patch = make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER})
    (tree / "src/a.txt").write_text(BEFORE.replace("line 7\n", "line seven\n"))
    assert state(patch, tree)[0] == "fails"


def test_missing_file_and_empty_submodule_are_told_apart(tmp_path: Path, tree: Path) -> None:
    patch = make_patch(tmp_path, "1", {"third_party/x/b.txt": BEFORE}, {"third_party/x/b.txt": AFTER})
    assert state(patch, tree) == ("target missing", "third_party/x/b.txt is not there: ./ has no third_party")
    (tree / "third_party" / "x").mkdir(parents=True)
    assert "third_party/x is empty, a submodule" in state(patch, tree)[1]
    with pytest.raises(PatchTargetMissing):
        apply([patch], tree)


def test_carriage_returns_are_named_with_the_side_that_has_them(tmp_path: Path, tree: Path) -> None:
    crlf = make_patch(
        tmp_path, "1", {"src/a.txt": BEFORE.replace("\n", "\r\n")}, {"src/a.txt": AFTER.replace("\n", "\r\n")}
    )
    assert "the patch has CRLF" in state(crlf, tree)[1]
    plain = make_patch(tmp_path, "2", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER})
    (tree / "src/a.txt").write_bytes(BEFORE.replace("\n", "\r\n").encode())
    assert "the source has CRLF" in state(plain, tree)[1]
    assert state(crlf, tree)[0] == "applies"


def test_new_removed_and_renamed_files_arrive(tmp_path: Path, tree: Path) -> None:
    (tree / "gone.txt").write_text("x\n")
    (tree / "old name.txt").write_text(BEFORE)
    old = {"gone.txt": "x\n", "old name.txt": BEFORE}
    patch = make_patch(tmp_path, "1", old, {"deep/new.txt": "hello\n", "new name.txt": BEFORE})
    assert state(patch, tree)[0] == "applies"
    apply([patch], tree)
    assert sorted(snapshot(tree)) == ["deep/new.txt", "new name.txt", "src/a.txt"]
    assert state(patch, tree)[0] == "already applied"


def test_binary_patch_applies(tmp_path: Path, tree: Path) -> None:
    (tree / "b.bin").write_bytes(b"\0\1\2")
    apply([make_patch(tmp_path, "1", {"b.bin": b"\0\1\2"}, {"b.bin": b"\0\7\2"})], tree)
    assert (tree / "b.bin").read_bytes() == b"\0\7\2"


@pytest.mark.parametrize("name", ["../outside.txt", "/etc/passwd"])
def test_patch_that_leaves_the_tree_is_refused(tmp_path: Path, tree: Path, name: str) -> None:
    path = tmp_path / "evil.patch"
    path.write_text(f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n")
    with pytest.raises(PatchFailed, match="outside the source tree"):
        classify([Patch(path=path, phase="base", sha256="")], tree)


def test_tree_inside_a_git_repository_is_patched_too(tmp_path: Path, tree: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    patch = make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER})
    apply([patch], tree)
    assert (tree / "src/a.txt").read_text() == AFTER
