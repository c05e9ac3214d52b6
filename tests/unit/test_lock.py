"""Locks, and git sources over real servers: shallow where the server can, whole where it cannot, with credentials."""

from __future__ import annotations

import base64
import dataclasses
import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import LockDiffers, MatrixError, PinMismatch, SourceUnreachable, UnknownFact, UsageError
from rocm_wheels.release import Cell, Release, load_matrix
from rocm_wheels.source import lock as locks
from rocm_wheels.source import plan_checkout, prepare
from tests.unit.test_source import commit, git, git_source, lay, repository

CONSOLE = Console(quiet=True)
FORGE = "https://forge.invalid/"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=str(tmp_path / "cache"), git_mirrors=f"{FORGE}={tmp_path.as_uri()}/")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repositories of which the first has a submodule that has one itself, made once."""
    folder = tmp_path_factory.mktemp("template")
    repository(folder / "leaf", {"l.txt": "leaf\n"})
    repository(folder / "sub", {"s.txt": "sub\n"})
    git("submodule", "--quiet", "add", "../leaf", "deep/leaf", cwd=folder / "sub")
    commit(folder / "sub", {})
    repository(folder / "super", {"a.txt": "one\n"})
    git("submodule", "--quiet", "add", "../sub", "third_party/sub", cwd=folder / "super")
    commit(folder / "super", {"a.txt": "two\n"})
    git("tag", "-a", "-m", "one", "v1", cwd=folder / "super")
    return folder


@pytest.fixture
def upstream(tmp_path: Path, template: Path) -> str:
    """Copies of the repositories; returns their first commit, which tag v1 names."""
    for name in ("leaf", "sub", "super"):
        shutil.copytree(template / name, tmp_path / name, symlinks=True)
    return git("rev-parse", "HEAD", cwd=tmp_path / "super")


def release(pin: str, branch: str | None = "main") -> Release:
    row = load_matrix().release("2.9.1")
    assert row.facts
    url = Cell(value=f"{FORGE}super", source="test")
    known = Cell(value=branch, source="test") if branch else Cell[str](note="nobody read it")
    facts = dataclasses.replace(
        row.facts, url=url, commit=Cell(value=pin, source="test"), amd_url=url, amd_branch=known
    )
    source = dataclasses.replace(row.source, url=f"{FORGE}super", commit=pin)
    return dataclasses.replace(row, framework="demo", version="1", source=source, facts=facts)


def resolve(row: Release, settings: Settings, ref: str = "", *, fork: bool = False) -> locks.Lock:
    return locks.resolve(row, ref=ref, fork=fork, settings=settings, console=CONSOLE)


def test_tag_branch_and_commit_are_resolved_with_submodules_of_submodules(
    tmp_path: Path, upstream: str, settings: Settings
) -> None:
    newer = commit(tmp_path / "super", {"a.txt": "three\n"})
    row = release(upstream)
    assert resolve(row, settings).commit == upstream
    assert resolve(row, settings, "v1").commit == upstream
    found = resolve(row, settings, fork=True)
    assert (found.ref, found.commit) == ("main", newer)
    assert [m.path for m in found.submodules] == ["third_party/sub", "third_party/sub/deep/leaf"]
    assert found.submodules[1].url == f"{FORGE}leaf"
    assert found.submodules[0].tree == git("rev-parse", "HEAD^{tree}", cwd=tmp_path / "sub")


def test_a_tag_goes_before_a_branch_of_its_name(tmp_path: Path, upstream: str, settings: Settings) -> None:
    commit(tmp_path / "super", {"a.txt": "three\n"})
    git("branch", "v1", cwd=tmp_path / "super")
    assert resolve(release(upstream), settings, "v1").commit == upstream


def test_an_unknown_name_branch_or_server_is_said(upstream: str, settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(PinMismatch, match="no tag or branch 'v9'"):
        resolve(release(upstream), settings, "v9")
    with pytest.raises(UnknownFact, match="--ref"):
        resolve(release(upstream, branch=None), settings, fork=True)
    (tmp_path / "super").rename(tmp_path / "gone")
    with pytest.raises(SourceUnreachable, match="git_mirrors"):
        resolve(release(upstream), settings, "v1")
    with pytest.raises(UsageError, match="directory source"):
        resolve(load_matrix().release("minitorch"), settings)


def test_a_build_takes_what_the_lock_says(tmp_path: Path, upstream: str, settings: Settings) -> None:
    newer = commit(tmp_path / "super", {"a.txt": "three\n"})
    row = release(upstream)
    folder = tmp_path / "locks"
    before = plan_checkout(row, settings=settings, patches=tmp_path, locks=folder)
    assert locks.write_lock(resolve(row, settings, "main"), update=False, locks=folder) == []
    plan = plan_checkout(row, settings=settings, patches=tmp_path, locks=folder)
    assert plan.fingerprint != before.fingerprint
    tree = prepare(plan, tmp_path / "tree", settings=settings, console=CONSOLE)
    assert tree.identity == newer
    assert (tree.path / "a.txt").read_text() == "three\n"
    assert (tree.path / "third_party/sub/deep/leaf/l.txt").read_text() == "leaf\n"


def test_a_lock_that_was_edited_is_refused(tmp_path: Path, upstream: str, settings: Settings) -> None:
    row = release(upstream)
    found = resolve(row, settings)
    wrong = dataclasses.replace(found.submodules[1], commit="0" * 40)
    edited = dataclasses.replace(found, submodules=(found.submodules[0], wrong))
    locks.write_lock(edited, update=False, locks=tmp_path / "locks")
    plan = plan_checkout(row, settings=settings, patches=tmp_path, locks=tmp_path / "locks")
    with pytest.raises(PinMismatch, match="third_party/sub/deep/leaf"):
        prepare(plan, tmp_path / "tree", settings=settings, console=CONSOLE)
    assert not (tmp_path / "tree").exists()


def test_a_moved_branch_is_shown_and_taken_over_only_with_update(
    tmp_path: Path, upstream: str, settings: Settings
) -> None:
    folder = tmp_path / "locks"
    row = release(upstream)
    first = resolve(row, settings, "main")
    locks.write_lock(first, update=False, locks=folder)
    git("rm", "-q", "-r", "third_party/sub", cwd=tmp_path / "super")
    newer = commit(tmp_path / "super", {"a.txt": "three\n"})
    second = resolve(row, settings, "main")
    with pytest.raises(LockDiffers, match=rf"commit: {upstream} → {newer}(?s:.)*third_party/sub: .* → gone"):
        locks.write_lock(second, update=False, locks=folder)
    assert locks.read_lock(row.name, folder) == first
    assert len(locks.write_lock(second, update=True, locks=folder)) == 4
    assert locks.read_lock(row.name, folder) == second
    assert locks.write_lock(second, update=False, locks=folder) == []


def test_the_same_lock_has_the_same_bytes(tmp_path: Path, upstream: str, settings: Settings) -> None:
    found = resolve(release(upstream), settings)
    for name in ("a", "b"):
        locks.write_lock(found, update=False, locks=tmp_path / name)
    assert (tmp_path / "a/demo-1.toml").read_bytes() == (tmp_path / "b/demo-1.toml").read_bytes()


def test_a_file_that_is_no_lock_or_anothers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo-1.toml").write_text("release = 'demo-1'\nurl = 1\n")
    with pytest.raises(MatrixError, match=r"demo-1\.toml"):
        locks.read_lock("demo-1", tmp_path)
    (tmp_path / "demo-1.toml").write_text("release='x-2'\nurl=''\nref=''\ncommit=''\ntree=''\n")
    with pytest.raises(LockDiffers, match="lock of x-2"):
        locks.read_lock("demo-1", tmp_path)


def test_every_lock_of_this_project_is_one() -> None:
    for path in locks.LOCKS.glob("*.toml"):
        found = locks.read_lock(path.stem)
        assert found
        assert found.commit != found.tree


def test_only_the_pinned_commit_is_fetched_where_the_server_can(
    tmp_path: Path, upstream: str, settings: Settings
) -> None:
    commit(tmp_path / "super", {"a.txt": "three\n"})
    lay(git_source(f"{FORGE}super", upstream), tmp_path / "tree", settings)
    (cache,) = (settings.cache / "git").glob("super-*.git")
    assert git("rev-list", "--count", "--all", cwd=cache) == "1"
    assert git("for-each-ref", "--format=%(refname)", cwd=cache) == f"refs/pins/{upstream}"


class Forge(http.server.SimpleHTTPRequestHandler):
    """Plain files, as a static server hands out a repository; below ``/private`` only for me:s3cr@t."""

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(b"me:s3cr@t").decode()
        if self.path.startswith("/private") and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def forge(tmp_path: Path, upstream: str) -> Iterator[int]:
    """The repositories of ``upstream`` on a server without git's protocol; yields its port."""
    for place in ("public", "private"):
        for name in ("super", "sub", "leaf"):
            git("clone", "-q", "--bare", str(tmp_path / name), str(tmp_path / "www" / place / name), cwd=tmp_path)
            git("update-server-info", cwd=tmp_path / "www" / place / name)
    handler = functools.partial(Forge, directory=str(tmp_path / "www"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_a_server_that_gives_no_single_commits_is_fetched_whole(
    tmp_path: Path, upstream: str, settings: Settings, forge: int
) -> None:
    plain = dataclasses.replace(settings, git_mirrors=f"{FORGE}=http://127.0.0.1:{forge}/public/")
    tree = lay(git_source(f"{FORGE}super", upstream), tmp_path / "tree", plain)
    assert (tree / "third_party/sub/deep/leaf/l.txt").is_file()


def test_credentials_reach_the_server_and_no_command_line_log_or_file(
    tmp_path: Path, upstream: str, settings: Settings, forge: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    seen = tmp_path / "argv"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(f'#!/bin/sh\necho "$@" >>{seen}\nexec {real} "$@"\n')
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_TRACE", str(tmp_path / "trace"))
    mirror = f"http://me:s3cr%40t@127.0.0.1:{forge}/private/"
    private = dataclasses.replace(settings, git_mirrors=f"{FORGE}={mirror}")
    tree = lay(git_source(f"{FORGE}super", upstream), tmp_path / "tree", private)
    assert (tree / "third_party/sub/s.txt").is_file()
    assert "127.0.0.1" in seen.read_text()
    assert "remote-http" in (tmp_path / "trace").read_text()
    kept = [p for root in (tmp_path / "cache", tree) for p in root.rglob("*") if p.is_file()]
    for path in (seen, tmp_path / "trace", *kept):
        assert b"s3cr" not in path.read_bytes(), path


@pytest.mark.parametrize("ref", ["", "v1"])
def test_wrong_credentials_are_an_error_that_does_not_show_them(
    upstream: str, settings: Settings, forge: int, ref: str
) -> None:
    mirror = f"http://me:hunter2@127.0.0.1:{forge}/private/"
    private = dataclasses.replace(settings, git_mirrors=f"{FORGE}={mirror}")
    with pytest.raises(SourceUnreachable) as caught:
        resolve(release(upstream), private, ref)
    assert "hunter2" not in f"{caught.value} {caught.value.as_dict()} {caught.value!r}"
    assert "127.0.0.1" in str(caught.value)
