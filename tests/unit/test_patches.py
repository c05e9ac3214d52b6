from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocm_wheels.errors import PatchFailed, PatchTargetMissing
from rocm_wheels.source import Patch, classify, patches
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
    with pytest.raises(PatchFailed, match=r"base/2\.patch: fails: patch failed: src/a\.txt:7"):
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


def test_offset_is_reported_and_applied(tmp_path: Path, tree: Path) -> None:
    patch = make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER})
    (tree / "src/a.txt").write_text("first\n" + BEFORE)
    assert state(patch, tree) == ("applies", "Hunk #1 succeeded at 8 (offset 1 line).")


def test_patch_that_is_there_in_part_is_said_to_be(tmp_path: Path, tree: Path) -> None:
    patch = make_patch(tmp_path, "1", {"src/a.txt": BEFORE, "b": "1\n"}, {"src/a.txt": AFTER, "b": "2\n"})
    (tree / "src/a.txt").write_text(AFTER)
    (tree / "b").write_text("1\n")
    kind, reason = state(patch, tree)
    assert kind == "fails"
    assert "partly applied" in reason
    assert "src/a.txt:7" in reason


def test_series_whose_patches_change_each_others_lines_is_seen_as_applied(tmp_path: Path, tree: Path) -> None:
    twice = AFTER.replace("line ten", "line X")
    series = [
        make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER}),
        make_patch(tmp_path, "2", {"src/a.txt": AFTER}, {"src/a.txt": twice}),
        make_patch(tmp_path, "3", {"b": "1\n"}, {"b": "2\n"}),
    ]
    (tree / "b").write_text("1\n")
    apply(series[:2], tree)
    assert [s.state for s in classify(series, tree)] == ["already applied", "already applied", "applies"]
    apply(series, tree)
    assert (tree / "src/a.txt").read_text() == twice
    assert (tree / "b").read_text() == "2\n"


def test_second_patch_alone_upstream_is_left_out(tmp_path: Path, tree: Path) -> None:
    end = BEFORE.replace("line 20", "the end")
    series = [
        make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER}),
        make_patch(tmp_path, "2", {"src/a.txt": BEFORE}, {"src/a.txt": end}),
    ]
    (tree / "src/a.txt").write_text(end)
    assert [s.state for s in apply(series, tree)] == ["applies", "already applied"]
    assert (tree / "src/a.txt").read_text() == AFTER.replace("line 20", "the end")


def test_users_git_configuration_makes_no_patch_fit(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lenient = tmp_path / "gitconfig"
    lenient.write_text("[apply]\n\tignoreWhitespace = change\n[core]\n\tautocrlf = input\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(lenient))
    patch = make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER})
    (tree / "src/a.txt").write_text(BEFORE.replace("line 9", "line   9"))
    assert state(patch, tree)[0] == "fails"
    (tree / "src/a.txt").write_bytes(BEFORE.replace("\n", "\r\n").encode())
    assert "the source has CRLF" in state(patch, tree)[1]


def test_scratch_and_patches_inside_a_repository_lose_no_file(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    patch = make_patch(tmp_path, "1", {"src/a.txt": BEFORE}, {"src/a.txt": AFTER})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    apply([patch], tree)
    assert (tree / "src/a.txt").read_text() == AFTER


def test_removed_line_that_looks_like_a_file_header_is_no_file(tmp_path: Path, tree: Path) -> None:
    patch = make_patch(tmp_path, "1", {"q.sql": "-- ../drop\nx\n"}, {"q.sql": "x\n"})
    (tree / "q.sql").write_text("-- ../drop\nx\n")
    apply([patch], tree)
    assert (tree / "q.sql").read_text() == "x\n"


def test_names_that_git_quotes_are_patched(tmp_path: Path, tree: Path) -> None:
    (tree / "d\u00e9j\u00e0 vu.txt").write_text("1\n")
    apply([make_patch(tmp_path, "1", {"d\u00e9j\u00e0 vu.txt": "1\n"}, {"d\u00e9j\u00e0 vu.txt": "2\n"})], tree)
    assert (tree / "d\u00e9j\u00e0 vu.txt").read_text() == "2\n"


def test_patch_through_a_symbolic_link_of_the_source_is_refused(tmp_path: Path, tree: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_text(BEFORE)
    (tree / "link").symlink_to(tmp_path / "outside")
    patch = make_patch(tmp_path, "1", {"link/a.txt": BEFORE}, {"link/a.txt": AFTER})
    with pytest.raises(PatchFailed, match="symbolic link"):
        apply([patch], tree)
    assert (tmp_path / "outside" / "a.txt").read_text() == BEFORE


def test_series_that_makes_a_link_and_writes_through_it_fails(tmp_path: Path, tree: Path) -> None:
    path = tmp_path / "link.patch"
    path.write_text(
        f"diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+{tmp_path}\n"
        "\\ No newline at end of file\n"
    )
    evil = make_patch(tmp_path, "2", {}, {"l/evil.txt": "x\n"})
    with pytest.raises(PatchFailed, match="symbolic link"):
        apply([Patch(path=path, phase="base", sha256=""), evil], tree)
    assert not (tmp_path / "evil.txt").exists()
    assert not (tree / "l").is_symlink()


def test_modes_follow_the_patch(tmp_path: Path, tree: Path) -> None:
    path = tmp_path / "mode.patch"
    path.write_text("diff --git a/src/a.txt b/src/a.txt\nold mode 100644\nnew mode 100755\n")
    (found,) = apply([Patch(path=path, phase="base", sha256="")], tree)
    assert found.state == "applies"
    assert (tree / "src/a.txt").stat().st_mode & 0o111


@pytest.mark.parametrize(
    "text", ["", "Why: nothing follows\n", "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,9 +1,9 @@\n x\n"]
)
def test_patch_that_is_none_fails(tmp_path: Path, tree: Path, text: str) -> None:
    path = tmp_path / "broken.patch"
    path.write_text(text)
    assert state(Patch(path=path, phase="base", sha256=""), tree)[0] == "fails"


@pytest.mark.parametrize("survived", range(4))
def test_series_killed_while_it_is_put_in_place_is_finished_by_the_next_run(
    tmp_path: Path, tree: Path, survived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"f{n}": (f"{n}\n", f"{n}{n}\n") for n in range(3)}
    for name, (old, _) in names.items():
        (tree / name).write_text(old)
    patch = make_patch(tmp_path, "1", {n: o for n, (o, _) in names.items()}, {n: w for n, (_, w) in names.items()})
    take_over, calls = patches._take_over, 0

    class Killed(BaseException):
        pass

    def dying(new: Path, folder: Path, name: str) -> None:
        nonlocal calls
        if calls == survived:
            raise Killed
        calls += 1
        take_over(new, folder, name)

    with monkeypatch.context() as patched:
        patched.setattr(patches, "_take_over", dying)
        if survived < 3:
            with pytest.raises(Killed):
                apply([patch], tree)
        else:
            apply([patch], tree)
    (found,) = apply([patch], tree)
    assert found.state == "already applied"
    assert {name: (tree / name).read_text() for name in names} == {name: new for name, (_, new) in names.items()}
    assert list((tree / ".rocm-wheels").iterdir()) == []
