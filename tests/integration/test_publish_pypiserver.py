"""Publishing to a real pypiserver and installing back from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import InstallFailed, NameTaken, PublicIndexRefused, ReadBackMismatch
from rocm_wheels.publish import install_back, publish
from rocm_wheels.publish.install import Tool
from tests.publish_servers import Server, pypiserver
from tests.publish_wheels import make_wheel, sha256

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Settings(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def console() -> Console:
    return Console()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with pypiserver(tmp_path / "server") as running:
        yield running


def test_a_published_wheel_lies_on_the_server_byte_for_byte(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    wheel = make_wheel(tmp_path / "dist")
    report = publish([wheel], server.url, settings=settings, console=console)
    assert [w.outcome for w in report.wheels] == ["published"]
    assert (server.files / wheel.name).read_bytes() == wheel.read_bytes()
    assert report.index_url == f"{server.url}simple/"


def test_a_second_publish_sends_nothing(server: Server, tmp_path: Path, settings: Settings, console: Console) -> None:
    wheel = make_wheel(tmp_path / "dist")
    publish([wheel], server.url, settings=settings, console=console)
    stored = (server.files / wheel.name).stat()
    report = publish([wheel], server.url, settings=settings, console=console)
    assert [w.outcome for w in report.wheels] == ["present"]
    assert (server.files / wheel.name).stat().st_mtime_ns == stored.st_mtime_ns


def test_a_dry_run_names_what_is_missing_and_sends_nothing(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    wheel = make_wheel(tmp_path / "dist")
    report = publish([wheel], server.url, settings=settings, console=console, dry_run=True)
    assert [w.outcome for w in report.wheels] == ["missing"]
    assert list(server.files.iterdir()) == []


def test_other_bytes_under_a_published_name_are_refused_with_both_hashes(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    first = make_wheel(tmp_path / "one")
    second = make_wheel(tmp_path / "two", files={"minitorch/__init__.py": b"other = True\n"})
    publish([first], server.url, settings=settings, console=console)
    with pytest.raises(NameTaken, match=sha256(first)) as caught:
        publish([second], server.url, settings=settings, console=console)
    assert sha256(second) in str(caught.value)
    assert (server.files / first.name).read_bytes() == first.read_bytes()


def test_one_unpublishable_wheel_keeps_the_whole_set_at_home(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    taken = make_wheel(tmp_path / "one")
    publish([taken], server.url, settings=settings, console=console)
    other = make_wheel(tmp_path / "two", files={"minitorch/__init__.py": b"other = True\n"})
    fresh = make_wheel(tmp_path / "two", name="atorch")
    with pytest.raises(NameTaken):
        publish([fresh, other], server.url, settings=settings, console=console)
    assert [p.name for p in server.files.iterdir()] == [taken.name]


def test_a_wheel_cut_on_the_server_is_found_when_it_is_rechecked(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    wheel = make_wheel(tmp_path / "dist", files={"minitorch/data": bytes(5000)})
    publish([wheel], server.url, settings=settings, console=console)
    stored = server.files / wheel.name
    stored.write_bytes(stored.read_bytes()[:-1000])
    with pytest.raises((ReadBackMismatch, NameTaken)):
        publish([wheel], server.url, settings=settings, console=console, recheck=True)


def test_a_rejected_wheel_is_never_sent(server: Server, tmp_path: Path, settings: Settings, console: Console) -> None:
    def reject(_: object) -> dict[str, list[str]]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        publish([make_wheel(tmp_path)], server.url, settings=settings, console=console, verify=reject)
    assert list(server.files.iterdir()) == []


def test_companions_arrive_before_the_wheel_that_needs_them(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    app = make_wheel(tmp_path, name="atorch", requires=["zcore ==1.0+rocm5.7"])
    core = make_wheel(tmp_path, name="zcore", version="1.0+rocm5.7")
    report = publish([app, core], server.url, settings=settings, console=console)
    assert [w.filename for w in report.wheels] == [core.name, app.name]


def test_a_name_from_pypirc_is_a_target(server: Server, tmp_path: Path, settings: Settings, console: Console) -> None:
    rc = tmp_path / "home" / ".pypirc"
    rc.parent.mkdir()
    rc.write_text(f"[distutils]\nindex-servers = team\n[team]\nrepository = {server.url}\n")
    wheel = make_wheel(tmp_path / "dist")
    publish([wheel], "team", settings=settings, console=console)
    assert (server.files / wheel.name).is_file()


@pytest.mark.parametrize("name", ["pypi", "testpypi"])
def test_a_local_version_never_goes_to_a_public_index(
    name: str, tmp_path: Path, settings: Settings, console: Console
) -> None:
    with pytest.raises(PublicIndexRefused, match="local version"):
        publish([make_wheel(tmp_path)], name, settings=settings, console=console)


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_pip_and_uv_install_back_by_hash(
    tool: Tool, server: Server, tmp_path: Path, settings: Settings, console: Console, this_python: str
) -> None:
    core = make_wheel(tmp_path, name="zcore", version="1.0+rocm5.7")
    app = make_wheel(tmp_path, requires=["zcore ==1.0+rocm5.7"])
    report = publish([app, core], server.url, settings=settings, console=console)
    result = install_back(
        report.index_url,
        "minitorch==0.1+rocm5.7",
        this_python,
        tool=tool,
        hashes=report.hashes(),
        environment=tmp_path / "env",
        console=console,
    )
    assert result.installed["minitorch"] == "0.1+rocm5.7"
    assert result.installed["zcore"] == "1.0+rocm5.7"


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_wheel_exchanged_on_the_server_does_not_install(
    tool: Tool, server: Server, tmp_path: Path, settings: Settings, console: Console, this_python: str
) -> None:
    wheel = make_wheel(tmp_path)
    report = publish([wheel], server.url, settings=settings, console=console)
    (server.files / wheel.name).unlink()
    make_wheel(server.files, files={"minitorch/__init__.py": b"evil = True\n"})
    with pytest.raises(InstallFailed, match="(?i)hash"):
        install_back(
            report.index_url,
            "minitorch==0.1+rocm5.7",
            this_python,
            tool=tool,
            hashes=report.hashes(),
            environment=tmp_path / "env",
            console=console,
        )


@pytest.fixture
def this_python() -> str:
    import sys

    return sys.executable
