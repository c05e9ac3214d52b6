"""What goes wrong between this machine and an index: each fault ends in its own message and leaves a sound index."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import (
    CredentialsRefused,
    NameTaken,
    ReadBackMismatch,
    RocmWheelsError,
    ServerFull,
    ServerUnreachable,
    UploadRefused,
    UploadTooLarge,
)
from rocm_wheels.publish import publish
from rocm_wheels.publish.simple import Index, IndexedFile
from tests.publish_servers import Fault, Server, faulty_proxy, free_port, pypiserver
from tests.publish_wheels import make_wheel

pytestmark = pytest.mark.integration
PASS = Fault("none")
SECRET = "hunter2-very-secret"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.sleep
    monkeypatch.setattr("rocm_wheels.publish.simple.time.sleep", lambda s: real(min(s, 0.05)))


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


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "dist", files={"minitorch/data": bytes(range(256)) * 1200})


def test_a_lost_reply_counts_as_done_when_the_index_has_the_file(
    server: Server, wheel: Path, settings: Settings, console: Console
) -> None:
    with faulty_proxy(server, Fault("drop-reply"), PASS) as proxy:
        report = publish([wheel], proxy.url, settings=settings, console=console)
        assert proxy.uploads == 1
    assert report.wheels[0].outcome == "published"
    assert (server.files / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("tenth", range(10))
def test_a_cut_connection_is_tried_again(
    tenth: int, server: Server, wheel: Path, settings: Settings, console: Console
) -> None:
    with faulty_proxy(server, Fault("cut", after=wheel.stat().st_size * tenth // 10), PASS) as proxy:
        publish([wheel], proxy.url, settings=settings, console=console)
        assert proxy.uploads == 2
    assert (server.files / wheel.name).read_bytes() == wheel.read_bytes()


def test_a_connection_that_always_breaks_is_named_and_the_rerun_finishes(
    server: Server, wheel: Path, settings: Settings, console: Console
) -> None:
    with faulty_proxy(server, Fault("cut", after=100_000)) as proxy:
        with pytest.raises(ServerUnreachable, match="connection .* broke"):
            publish([wheel], proxy.url, settings=settings, console=console)
        assert list(server.files.iterdir()) == []
        proxy.faults = [PASS]
        report = publish([wheel], proxy.url, settings=settings, console=console)
    assert report.wheels[0].outcome == "published"


def test_a_server_that_closes_at_the_same_byte_has_a_limit(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    big = make_wheel(tmp_path / "dist", files={"minitorch/data": bytes(60 << 20)})
    with faulty_proxy(server, Fault("cut", after=20 << 20)) as proxy:
        with pytest.raises(UploadTooLarge, match="size limit, not the network") as caught:
            publish([big], proxy.url, settings=settings, console=console)
        assert proxy.uploads == 2
    assert "dir:PATH" in caught.value.remedy


@pytest.mark.parametrize(
    ("status", "text", "error", "advice"),
    [
        (413, "<html><center>nginx/1.22.1</center></html>", UploadTooLarge, "client_max_body_size"),
        (413, "Request Entity Too Large", UploadTooLarge, "--max-request-body-size"),
        (401, "", CredentialsRefused, "TWINE_USERNAME"),
        (403, "Forbidden", CredentialsRefused, "TWINE_USERNAME"),
        (507, "Insufficient Storage", ServerFull, "free space on the server"),
        (500, "[Errno 28] No space left on device", ServerFull, "free space on the server"),
        (409, "Conflict", NameTaken, "half-written"),
        (400, "File already exists", NameTaken, "half-written"),
        (400, "invalid metadata", UploadRefused, "log"),
        (405, "Method Not Allowed", UploadRefused, "takes no uploads"),
    ],
)
def test_each_refusal_is_explained_by_its_layer(
    status: int,
    text: str,
    error: type[RocmWheelsError],
    advice: str,
    server: Server,
    wheel: Path,
    settings: Settings,
    console: Console,
) -> None:
    with faulty_proxy(server, Fault("answer", status=status, text=text)) as proxy:
        with pytest.raises(error, match=wheel.name.replace("+", r"\+")) as caught:
            publish([wheel], proxy.url, settings=settings, console=console)
        assert type(caught.value) is error
        assert advice in caught.value.remedy
    assert list(server.files.iterdir()) == []


def test_a_wheel_over_the_ceiling_of_a_host_is_told_with_what_makes_it_big(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    library = "minitorch/lib/rocblas/library/TensileLibrary_gfx1030.co"
    wheel = make_wheel(
        tmp_path / "dist", files={library: bytes(2 << 20), "minitorch/lib/librocblas.so.0": bytes(1 << 20)}
    )
    with faulty_proxy(server, Fault("answer", status=413, text="limit is 1 MB")) as proxy:
        with pytest.raises(
            UploadTooLarge, match=rf"{library} 2.0 MiB, .*librocblas.so.0 1.0 MiB.*data of gfx1030 2.0"
        ) as e:
            publish([wheel], proxy.url, settings=settings, console=console)
    assert "invoke layers" in e.value.remedy


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_passing_failure_of_the_server_is_tried_again(
    status: int, server: Server, wheel: Path, settings: Settings, console: Console
) -> None:
    with faulty_proxy(server, Fault("answer", status=status), PASS) as proxy:
        publish([wheel], proxy.url, settings=settings, console=console)
        assert proxy.uploads == 2


def test_a_half_stored_file_is_told_apart_from_a_foreign_one(
    server: Server, wheel: Path, settings: Settings, console: Console
) -> None:
    with faulty_proxy(server, Fault("store-half", after=5000)) as proxy:
        with pytest.raises(ReadBackMismatch, match=r"kept 5000 of \d+ bytes"):
            publish([wheel], proxy.url, settings=settings, console=console)


def test_no_server_at_all_is_named_with_its_address(wheel: Path, settings: Settings, console: Console) -> None:
    with pytest.raises(ServerUnreachable, match="Connection refused"):
        publish([wheel], f"http://127.0.0.1:{free_port()}/", settings=settings, console=console)


def test_a_server_that_restarts_in_between_gets_the_rest(tmp_path: Path, settings: Settings, console: Console) -> None:
    wheels = [make_wheel(tmp_path / "dist", name=f"part{n}") for n in range(4)]
    with pypiserver(tmp_path / "server") as first:
        publish(wheels[:2], first.url, settings=settings, console=console)
    with pytest.raises(ServerUnreachable):
        publish(wheels, first.url, settings=settings, console=console)
    with pypiserver(tmp_path / "server", port=first.port) as second:
        report = publish(wheels, second.url, settings=settings, console=console)
    assert [w.outcome for w in report.wheels] == ["present", "present", "published", "published"]


def test_two_publishers_of_the_same_wheel_both_succeed(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    wheels = [make_wheel(tmp_path / "dist", name=f"part{n}", files={"x": bytes(200_000)}) for n in range(5)]
    failures: list[BaseException] = []

    def run() -> None:
        try:
            publish(wheels, server.url, settings=settings, console=console)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    for wheel in wheels:
        assert (server.files / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_password_is_in_no_output_error_journal_or_page(
    server: Server, wheel: Path, settings: Settings, console: Console, capfd: pytest.CaptureFixture[str]
) -> None:
    with faulty_proxy(server, Fault("answer", status=403, text="Forbidden")) as proxy:
        address = proxy.url.replace("//", f"//builder:{SECRET}@")
        with pytest.raises(CredentialsRefused) as caught:
            publish([wheel], address, settings=settings, console=console)
        proxy.faults = [Fault("cut", after=1000)]
        with pytest.raises(ServerUnreachable) as lost:
            publish([wheel], address, settings=settings, console=console)
        proxy.faults = [PASS]
        report = publish([wheel], address, settings=settings, console=console)
    written = capfd.readouterr()
    everywhere = [str(caught.value), str(lost.value), json.dumps(report.as_dict()), written.out, written.err]
    everywhere += [p.read_text() for p in settings.cache.rglob("*") if p.is_file()]
    assert not [text for text in everywhere if SECRET in text]
    assert report.index_url.startswith("http://127.0.0.1:") and "builder" not in report.index_url


@pytest.mark.parametrize("prefix", ["TWINE_", "ROCM_WHEELS_INDEX_"])
def test_credentials_from_the_environment_are_used(
    prefix: str,
    server: Server,
    wheel: Path,
    settings: Settings,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"{prefix}USERNAME", "builder")
    monkeypatch.setenv(f"{prefix}PASSWORD", SECRET)
    publish([wheel], server.url, settings=settings, console=console)
    assert "User 'builder' stored" in (server.files.parent / "pypiserver.log").read_text()


def test_a_stale_page_that_names_a_missing_file_is_not_installable(
    server: Server, wheel: Path, settings: Settings, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish([wheel], server.url, settings=settings, console=console)
    real = Index.files

    def stale(self: Index, project: str) -> dict[str, IndexedFile]:
        return {k: dataclasses.replace(f, url=f.url + ".gone") for k, f in real(self, project).items()}  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "files", stale)
    with pytest.raises(ReadBackMismatch, match="has no file at"):
        publish([wheel], server.url, settings=settings, console=console, recheck=True)


def test_an_index_that_forwards_to_another_is_not_believed_and_warned_about(
    server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    make_wheel(server.files, files={"minitorch/__init__.py": b"theirs = True\n"})
    ours = make_wheel(tmp_path / "dist")
    with pypiserver(tmp_path / "forwarding", "--fallback-url", f"{server.url}simple/") as forwarding:
        report = publish([ours], forwarding.url, settings=settings, console=console)
        assert (forwarding.files / ours.name).read_bytes() == ours.read_bytes()
    assert report.wheels[0].outcome == "published"
    assert "--disable-fallback" in report.warnings[0]
