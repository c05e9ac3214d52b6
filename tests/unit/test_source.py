from __future__ import annotations

import dataclasses
import hashlib
import http.server
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import (
    ForeignTree,
    PatchFailed,
    PinMismatch,
    RocmWheelsError,
    SourceUnreachable,
    SubmoduleBroken,
)
from rocm_wheels.release import Archive, Release, Source, load_matrix
from rocm_wheels.source import CheckoutPlan, apply_series, checkout, plan_checkout, prepare
from rocm_wheels.source import address as addresses
from rocm_wheels.source.address import rewrite

CONSOLE = Console(quiet=True)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=str(tmp_path / "cache"))


def release(source: Source) -> Release:
    return dataclasses.replace(load_matrix().release("minitorch"), framework="demo", version="1", source=source)


def lay(source: Source, dest: Path, settings: Settings, patches: Path | None = None) -> Path:
    plan = plan_checkout(release(source), settings=settings, patches=patches or dest.parent / "none")
    return prepare(plan, dest, settings=settings, console=CONSOLE).path


def git(*words: str, cwd: Path) -> str:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        **{f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    command = ["git", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def repository(path: Path, files: dict[str, str]) -> str:
    path.mkdir()
    git("init", "-q", "-b", "main", cwd=path)
    return commit(path, files)


def commit(path: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (path / name).write_text(text)
    git("add", "-A", cwd=path)
    git("commit", "-q", "-m", "c", cwd=path)
    return git("rev-parse", "HEAD", cwd=path)


@pytest.fixture
def superproject(tmp_path: Path) -> tuple[Path, str]:
    repository(tmp_path / "sub", {"s.txt": "sub\n"})
    repository(tmp_path / "super", {"a.txt": "one\n"})
    git("submodule", "--quiet", "add", "../sub", "third_party/sub", cwd=tmp_path / "super")
    return tmp_path / "super", commit(tmp_path / "super", {"a.txt": "two\n"})


def git_source(url: object, commit_id: str) -> Source:
    return Source(kind="git", url=str(url), commit=commit_id)


def test_git_tree_is_laid_at_the_pin_with_its_submodules(
    tmp_path: Path, superproject: tuple[Path, str], settings: Settings
) -> None:
    path, pin = superproject
    commit(path, {"a.txt": "three\n"})
    tree = lay(git_source(path, pin), tmp_path / "tree", settings)
    assert (tree / "a.txt").read_text() == "two\n"
    assert (tree / "third_party/sub/s.txt").read_text() == "sub\n"
    assert not list(tree.rglob(".git"))


def test_second_tree_needs_no_network(tmp_path: Path, superproject: tuple[Path, str], settings: Settings) -> None:
    path, pin = superproject
    lay(git_source(path, pin), tmp_path / "one", settings)
    path.rename(tmp_path / "away")
    (tmp_path / "sub").rename(tmp_path / "sub-away")
    tree = lay(git_source(path, pin), tmp_path / "two", settings)
    assert (tree / "third_party/sub/s.txt").is_file()


def test_unknown_commit_is_a_pin_mismatch(tmp_path: Path, superproject: tuple[Path, str], settings: Settings) -> None:
    with pytest.raises(PinMismatch, match="has no commit"):
        lay(git_source(superproject[0], "0" * 40), tmp_path / "tree", settings)
    assert not (tmp_path / "tree").exists()


def test_unreachable_repository_names_the_mirror_setting(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(SourceUnreachable, match="git_mirrors"):
        lay(git_source(tmp_path / "nowhere", "1" * 40), tmp_path / "tree", settings)


def test_submodule_commit_that_is_gone_is_named(
    tmp_path: Path, superproject: tuple[Path, str], settings: Settings
) -> None:
    path, pin = superproject
    sub = tmp_path / "sub"
    git("checkout", "-q", "--orphan", "new", cwd=sub)
    commit(sub, {"s.txt": "rewritten\n"})
    git("branch", "-D", "main", cwd=sub)
    git("reflog", "expire", "--expire=now", "--all", cwd=sub)
    git("gc", "-q", "--prune=now", cwd=sub)
    with pytest.raises(SubmoduleBroken, match="submodule third_party/sub"):
        lay(git_source(path, pin), tmp_path / "tree", settings)


def test_mirror_rewrite_serves_an_address_that_does_not_exist(
    tmp_path: Path, superproject: tuple[Path, str], settings: Settings
) -> None:
    path, pin = superproject
    mirrored = dataclasses.replace(settings, git_mirrors=f"https://example.invalid/=file://{tmp_path}/")
    tree = lay(git_source("https://example.invalid/super", pin), tmp_path / "tree", mirrored)
    assert (tree / "third_party/sub/s.txt").is_file()
    del path


def test_longest_mirror_rule_wins() -> None:
    assert rewrite("https://h/a/b", "https://h/=/x/;https://h/a/=/y/") == "/y/b"
    assert rewrite("https://h/a/b", "https://other/=/x/") == "https://h/a/b"


def make_archive(path: Path, files: dict[str, str]) -> Archive:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            source = path.parent / "content"
            source.write_text(text)
            tar.add(source, name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Archive(urls=(path.as_uri(),), sha256=digest)


def test_archives_with_parts_make_one_tree(tmp_path: Path, settings: Settings) -> None:
    main = make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": "a", "demo-1/b/c.txt": "c"})
    part = dataclasses.replace(make_archive(tmp_path / "part.tar.gz", {"fmt-9/f.h": "f"}), into="third_party/fmt")
    tree = lay(Source(kind="archive", archives=(main, part)), tmp_path / "tree", settings)
    found = {p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()} - {".rocm-wheels/source.json"}
    assert found == {"a.txt", "b/c.txt", "third_party/fmt/f.h"}


def test_archive_whose_submodules_are_empty_is_refused(tmp_path: Path, settings: Settings) -> None:
    modules = '[submodule "sub"]\n\tpath = third_party/sub\n\turl = ../sub\n'
    main = make_archive(tmp_path / "main.tar.gz", {"demo-1/.gitmodules": modules, "demo-1/a.txt": "a"})
    with pytest.raises(SubmoduleBroken, match="bring nothing for third_party/sub"):
        lay(Source(kind="archive", archives=(main,)), tmp_path / "tree", settings)
    assert not (tmp_path / "tree").exists()
    filled = dataclasses.replace(make_archive(tmp_path / "p.tar.gz", {"sub-1/s.h": ""}), into="third_party/sub")
    assert (lay(Source(kind="archive", archives=(main, filled)), tmp_path / "tree", settings) / "a.txt").is_file()


def test_archive_with_other_content_is_refused_and_not_kept(tmp_path: Path, settings: Settings) -> None:
    archive = make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": "a"})
    wrong = dataclasses.replace(archive, sha256="0" * 64)
    with pytest.raises(PinMismatch, match="the release data pins"):
        lay(Source(kind="archive", archives=(wrong,)), tmp_path / "tree", settings)
    assert not [p for p in (tmp_path / "cache" / "archives").iterdir() if not p.name.endswith(".lock")]


def test_archive_that_escapes_is_refused(tmp_path: Path, settings: Settings) -> None:
    archive = make_archive(tmp_path / "evil.tar.gz", {"demo/../../evil.txt": "x"})
    with pytest.raises(PinMismatch, match="cannot be unpacked"):
        lay(Source(kind="archive", archives=(archive,)), tmp_path / "tree", settings)
    assert not (tmp_path / "evil.txt").exists()


def test_source_mirror_directory_comes_first(tmp_path: Path, settings: Settings) -> None:
    archive = make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": "a"})
    elsewhere = dataclasses.replace(archive, urls=("https://example.invalid/main.tar.gz",))
    mirrored = dataclasses.replace(settings, source_mirror=str(tmp_path))
    tree = lay(Source(kind="archive", archives=(elsewhere,)), tmp_path / "tree", mirrored)
    assert (tree / "a.txt").is_file()


def test_no_address_answers_lists_them_all(tmp_path: Path, settings: Settings) -> None:
    urls = (f"file://{tmp_path}/x.tar.gz", f"file://{tmp_path}/y.tar.gz")
    with pytest.raises(SourceUnreachable, match=r"(?s)x\.tar\.gz.*y\.tar\.gz.*source_mirror"):
        lay(Source(kind="archive", archives=(Archive(urls=urls, sha256="1" * 64),)), tmp_path / "tree", settings)


def test_second_run_is_a_no_op_and_an_edited_patch_gives_a_fresh_tree(tmp_path: Path, settings: Settings) -> None:
    archive = make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": "a\n"})
    source = Source(kind="archive", archives=(archive,))
    folder = tmp_path / "patches" / "demo" / "1" / "base"
    folder.mkdir(parents=True)
    patch = folder / "0001-b.patch"
    patch.write_text("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n")
    tree = lay(source, tmp_path / "tree", settings, tmp_path / "patches")
    (tree / "left").touch()
    lay(source, tmp_path / "tree", settings, tmp_path / "patches")
    assert (tree / "left").exists()
    patch.write_text(patch.read_text().replace("+b", "+c"))
    lay(source, tmp_path / "tree", settings, tmp_path / "patches")
    assert not (tree / "left").exists()
    assert (tree / "a.txt").read_text() == "c\n"


def test_failed_series_leaves_no_tree(tmp_path: Path, settings: Settings) -> None:
    archive = make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": "a\n"})
    folder = tmp_path / "patches" / "demo" / "1" / "base"
    folder.mkdir(parents=True)
    (folder / "0001-b.patch").write_text("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+b\n")
    with pytest.raises(RocmWheelsError, match="0001-b"):
        lay(Source(kind="archive", archives=(archive,)), tmp_path / "tree", settings, tmp_path / "patches")
    assert not (tmp_path / "tree").exists()


def test_directory_source_changes_its_fingerprint_with_its_content(settings: Settings) -> None:
    plan = plan_checkout(load_matrix().release("minitorch"), settings=settings)
    again = plan_checkout(load_matrix().release("minitorch"), settings=settings)
    assert plan.fingerprint == again.fingerprint
    other = plan_checkout(release(Source(kind="directory", path="tests/unit")), settings=settings)
    assert other.fingerprint != plan.fingerprint


def demo_source(tmp_path: Path) -> Source:
    return Source(kind="archive", archives=(make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": "a\n"}),))


def test_a_directory_that_is_not_ours_is_never_replaced(tmp_path: Path, settings: Settings) -> None:
    mine = tmp_path / "tree" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("years of work")
    with pytest.raises(ForeignTree, match="stays as it is"):
        lay(demo_source(tmp_path), tmp_path / "tree", settings)
    assert mine.read_text() == "years of work"


def test_an_empty_directory_is_filled(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "tree").mkdir()
    assert (lay(demo_source(tmp_path), tmp_path / "tree", settings) / "a.txt").is_file()


def test_a_tree_of_another_plan_is_whole_or_gone_when_its_replacement_dies(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = demo_source(tmp_path)
    tree = lay(source, tmp_path / "tree", settings)
    other = dataclasses.replace(source, origin="elsewhere")

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", die)
        with pytest.raises(Killed):
            checkout._swap(tmp_path / "nothing", tree)
    assert (tree / "a.txt").is_file()
    assert (lay(other, tmp_path / "tree", settings) / "a.txt").is_file()
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["cache", "tree"]


def hipified_plan(tmp_path: Path, settings: Settings, *patches: str) -> CheckoutPlan:
    folder = tmp_path / "patches" / "demo" / "1" / "hipified"
    folder.mkdir(parents=True)
    for number, text in enumerate(patches, 1):
        (folder / f"{number:04}-p.patch").write_text(text)
    return plan_checkout(release(demo_source(tmp_path)), settings=settings, patches=tmp_path / "patches")


def test_a_series_that_changes_its_own_lines_again_is_a_no_op_the_second_time(
    tmp_path: Path, settings: Settings
) -> None:
    first = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n"
    plan = hipified_plan(tmp_path, settings, first, first.replace("+b", "+c").replace("-a", "-b"))
    tree = prepare(plan, tmp_path / "tree", settings=settings, console=CONSOLE).path
    assert [s.state for s in apply_series(plan, tree, "hipified", CONSOLE)] == ["applies", "applies"]
    assert [s.state for s in apply_series(plan, tree, "hipified", CONSOLE)] == ["already applied"] * 2
    assert (tree / "a.txt").read_text() == "c\n"


def test_a_failed_later_series_is_not_recorded(tmp_path: Path, settings: Settings) -> None:
    plan = hipified_plan(tmp_path, settings, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+b\n")
    tree = prepare(plan, tmp_path / "tree", settings=settings, console=CONSOLE).path
    before = (tree / ".rocm-wheels" / "source.json").read_bytes()
    with pytest.raises(PatchFailed):
        apply_series(plan, tree, "hipified", CONSOLE)
    assert (tree / ".rocm-wheels" / "source.json").read_bytes() == before


def test_a_later_series_wants_a_tree_that_was_laid_here(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(ForeignTree):
        apply_series(hipified_plan(tmp_path, settings), tmp_path, "hipified", CONSOLE)


def test_what_a_killed_run_left_in_the_cache_is_replaced(tmp_path: Path, settings: Settings) -> None:
    dest = settings.cache / "trees" / "one" / "src"
    dest.mkdir(parents=True)
    (dest / "half").touch()
    assert (lay(demo_source(tmp_path), dest, settings) / "a.txt").is_file()
    assert not (dest / "half").exists()


def test_recorded_submodule_without_address_is_named(
    tmp_path: Path, superproject: tuple[Path, str], settings: Settings
) -> None:
    path, _ = superproject
    git("rm", "-q", "--cached", ".gitmodules", cwd=path)
    (path / ".gitmodules").unlink()
    with pytest.raises(SubmoduleBroken, match="third_party/sub"):
        lay(git_source(path, commit(path, {})), tmp_path / "tree", settings)


@pytest.mark.parametrize("address", ["--upload-pack=touch PWNED", "ext::sh -c touch% PWNED", "-x"])
def test_submodule_address_that_is_an_option_or_command_is_refused(
    tmp_path: Path, superproject: tuple[Path, str], settings: Settings, address: str
) -> None:
    path, _ = superproject
    git("config", "--file", ".gitmodules", "submodule.third_party/sub.url", address, cwd=path)
    with pytest.raises(SubmoduleBroken, match="no address of another machine"):
        lay(git_source(path, commit(path, {})), tmp_path / "tree", settings)
    assert not list(tmp_path.rglob("PWNED"))


def test_source_from_the_network_reaches_no_local_repository_unless_a_mirror_says_so(settings: Settings) -> None:
    with pytest.raises(SubmoduleBroken):
        addresses.refuse_unsafe("file:///home/me/secret", "https://h/super", settings)
    mirrored = dataclasses.replace(settings, git_mirrors="file:///home/me/=file:///srv/")
    addresses.refuse_unsafe("file:///home/me/secret", "https://h/super", mirrored)
    addresses.refuse_unsafe("https://[::1]/sub", "https://h/super", settings)


@pytest.mark.parametrize("parent", ["https://h/o/super", "ssh://git@h/o/super", "git@h:o/super", "/srv/o/super"])
def test_relative_submodule_address_is_beside_its_parent(parent: str) -> None:
    assert addresses.resolve(parent, "../sub") == parent.replace("super", "sub")


def test_lock_of_a_killed_git_does_not_stop_the_next_fetch(
    tmp_path: Path, superproject: tuple[Path, str], settings: Settings
) -> None:
    path, pin = superproject
    lay(git_source(path, pin), tmp_path / "one", settings)
    for cache in (settings.cache / "git").glob("super-*.git"):
        for name in ("shallow.lock", "packed-refs.lock", "config.lock"):
            (cache / name).touch()
    newer = commit(path, {"a.txt": "newer\n"})
    assert (lay(git_source(path, newer), tmp_path / "two", settings) / "a.txt").read_text() == "newer\n"


@pytest.fixture
def half_server() -> Iterator[str]:
    """A server that breaks off in the middle, or answers with a login page below ``/login/``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html>log in</html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body) if "login" in self.path else 1000))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("page", ["half", "login"])
def test_bad_first_address_gives_way_to_the_next(
    tmp_path: Path, settings: Settings, half_server: str, page: str
) -> None:
    good = make_archive(tmp_path / "main.tar.gz", {"demo-1/a.txt": "a"})
    both = dataclasses.replace(good, urls=(f"{half_server}/{page}/main.tar.gz", *good.urls))
    assert (lay(Source(kind="archive", archives=(both,)), tmp_path / "tree", settings) / "a.txt").is_file()


def test_answer_that_breaks_off_is_no_pin_mismatch(tmp_path: Path, settings: Settings, half_server: str) -> None:
    archive = Archive(urls=(f"{half_server}/half/main.tar.gz",), sha256="1" * 64)
    with pytest.raises(SourceUnreachable, match="broke off after 19 of 1000 bytes"):
        lay(Source(kind="archive", archives=(archive,)), tmp_path / "tree", settings)


def test_damaged_file_in_the_cache_is_fetched_again(tmp_path: Path, settings: Settings) -> None:
    source = demo_source(tmp_path)
    lay(source, tmp_path / "one", settings)
    (cached,) = (settings.cache / "archives").glob("*.tar.gz")
    cached.write_bytes(b"bit rot")
    assert (lay(source, tmp_path / "two", settings) / "a.txt").is_file()


def debian_package(folder: Path) -> Source:
    folder.mkdir()
    lines = []
    for name in ("demo_1.orig.tar.gz", "demo_1.orig-fmt.tar.gz"):
        digest = make_archive(folder / name, {"demo-1/a.txt": "a"}).sha256
        lines.append(f" {digest} 1 {name}\n")
    (folder / "content").unlink()
    dsc = folder / "demo_1-1.dsc"
    dsc.write_text("Format: 3.0 (quilt)\nChecksums-Sha256:\n" + "".join(lines) + "Files:\n")
    digest = hashlib.sha256(dsc.read_bytes()).hexdigest()
    return Source(kind="debian", package="demo", version="1-1", suite="trixie", sha256=digest)


def test_debian_source_puts_components_in_their_places(tmp_path: Path, settings: Settings) -> None:
    source = debian_package(tmp_path / "mirror")
    mirrored = dataclasses.replace(settings, source_mirror=str(tmp_path / "mirror"))
    tree = lay(source, tmp_path / "tree", mirrored)
    assert (tree / "a.txt").is_file()
    assert (tree / "fmt" / "a.txt").is_file()


@pytest.mark.parametrize("name", ["demo_1.orig.tar.gz", "demo_1-1.dsc"])
def test_debian_file_that_was_changed_is_refused_and_not_kept(tmp_path: Path, settings: Settings, name: str) -> None:
    source = debian_package(tmp_path / "mirror")
    mirrored = dataclasses.replace(settings, source_mirror=str(tmp_path / "mirror"))
    whole = (tmp_path / "mirror" / name).read_bytes()
    (tmp_path / "mirror" / name).write_bytes(whole + b"\n")
    with pytest.raises(PinMismatch, match=name):
        lay(source, tmp_path / "tree", mirrored)
    (tmp_path / "mirror" / name).write_bytes(whole)
    assert (lay(source, tmp_path / "tree", mirrored) / "a.txt").is_file()


def test_half_a_debian_package_is_an_error_of_its_own_and_completed_later(tmp_path: Path, settings: Settings) -> None:
    source = debian_package(tmp_path / "mirror")
    mirrored = dataclasses.replace(settings, source_mirror=str(tmp_path / "mirror"))
    (tmp_path / "mirror" / "demo_1.orig-fmt.tar.gz").rename(tmp_path / "later")
    with pytest.raises(SourceUnreachable, match="demo_1.orig-fmt"):
        lay(source, tmp_path / "tree", mirrored)
    (tmp_path / "later").rename(tmp_path / "mirror" / "demo_1.orig-fmt.tar.gz")
    assert (lay(source, tmp_path / "tree", mirrored) / "fmt" / "a.txt").is_file()


def test_prepare_killed_anywhere_ends_in_the_same_tree(
    tmp_path: Path, superproject: tuple[Path, str], settings: Settings
) -> None:
    path, pin = superproject
    code = (
        "import sys, dataclasses; from pathlib import Path; sys.path.insert(0, sys.argv[4])\n"
        "from tests.unit.test_source import lay, git_source; from rocm_wheels.config import Settings\n"
        "print('go', flush=True)\n"
        "lay(git_source(sys.argv[1], sys.argv[2]), Path(sys.argv[3]), Settings(cache_dir=sys.argv[3] + '-cache'))\n"
    )
    tree = tmp_path / "tree"
    root = str(Path(__file__).parents[2])
    for delay in (0.0, 0.02, 0.05, 0.09, 0.14, 0.2):
        argv = [sys.executable, "-c", code, str(path), pin, str(tree), root]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stdout.readline() == b"go\n"
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
    own = dataclasses.replace(settings, cache_dir=f"{tree}-cache")
    lay(git_source(path, pin), tree, own)
    found = {p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()}
    assert found == {".gitmodules", ".rocm-wheels/source.json", "a.txt", "third_party/sub/s.txt"}
