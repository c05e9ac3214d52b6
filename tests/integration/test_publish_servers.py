"""Other servers than pypiserver: devpi, and nginx in front of an index or of a static directory."""

from __future__ import annotations

import importlib.util
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import CredentialsRefused, NameTaken, UploadTooLarge
from rocm_wheels.publish import install_back, publish
from rocm_wheels.publish.install import Tool
from tests.publish_servers import Server, devpi, has_nginx, nginx, pypiserver
from tests.publish_wheels import make_wheel

pytestmark = pytest.mark.integration
needs_nginx = pytest.mark.skipif(not has_nginx(), reason="nginx is not installed (apt-get install nginx-light)")
needs_devpi = pytest.mark.skipif(
    importlib.util.find_spec("devpi_server") is None, reason="devpi-server is not installed (pip install devpi-server)"
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Settings(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def console() -> Console:
    return Console()


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINE_USERNAME", "team")
    monkeypatch.setenv("TWINE_PASSWORD", "pass-of-team")


@pytest.fixture
def devpi_server(tmp_path: Path, team: None) -> Iterator[Server]:
    with devpi(tmp_path / "devpi") as running:
        yield running


@needs_devpi
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_devpi_takes_a_set_once_and_gives_it_back(
    tool: Tool, devpi_server: Server, tmp_path: Path, settings: Settings, console: Console
) -> None:
    core = make_wheel(tmp_path, name="zcore", version="1.0+rocm5.7")
    app = make_wheel(tmp_path, requires=["zcore ==1.0+rocm5.7"])
    report = publish([app, core], devpi_server.url, settings=settings, console=console)
    again = publish([app, core], devpi_server.url, settings=settings, console=console)
    assert report.index_url == f"{devpi_server.url}+simple/"
    assert [w.outcome for w in again.wheels] == ["present", "present"]
    result = install_back(
        report.index_url,
        "minitorch==0.1+rocm5.7",
        sys.executable,
        tool=tool,
        hashes=report.hashes(),
        environment=tmp_path / "env",
        console=console,
    )
    assert result.installed["zcore"] == "1.0+rocm5.7"


@needs_devpi
def test_devpi_refuses_other_bytes_and_a_wrong_password(
    devpi_server: Server, tmp_path: Path, settings: Settings, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_wheel(tmp_path / "one")
    publish([first], devpi_server.url, settings=settings, console=console)
    other = make_wheel(tmp_path / "two", files={"minitorch/__init__.py": b"other = True\n"})
    with pytest.raises(NameTaken):
        publish([other], devpi_server.url, settings=settings, console=console)
    monkeypatch.setenv("TWINE_PASSWORD", "wrong-of-team")
    with pytest.raises(CredentialsRefused) as caught:
        publish([make_wheel(tmp_path, name="fresh")], devpi_server.url, settings=settings, console=console)
    assert "wrong-of-team" not in str(caught.value)


@needs_devpi
def test_the_body_limit_of_devpi_is_named_with_its_option(
    tmp_path: Path, settings: Settings, console: Console, team: None
) -> None:
    wheel = make_wheel(tmp_path, files={"minitorch/data": bytes(40 << 20)})
    with devpi(tmp_path / "devpi", "--max-request-body-size", str(1 << 20)) as server:
        with pytest.raises(UploadTooLarge, match="413") as caught:
            publish([wheel], server.url, settings=settings, console=console)
    assert "--max-request-body-size" in caught.value.remedy


@needs_nginx
@pytest.mark.parametrize("size", [2 << 20, 40 << 20], ids=["seen during the upload", "asked before the upload"])
def test_the_body_limit_of_nginx_is_named_with_its_setting(
    size: int, tmp_path: Path, settings: Settings, console: Console
) -> None:
    wheel = make_wheel(tmp_path, files={"minitorch/data": bytes(size)})
    with pypiserver(tmp_path / "server") as inner:
        location = f"client_max_body_size 1m; proxy_pass http://127.0.0.1:{inner.port};"
        with nginx(tmp_path / "nginx", location) as outer:
            with pytest.raises(UploadTooLarge) as caught:
                publish([wheel], outer.url, settings=settings, console=console)
        assert list(inner.files.iterdir()) == []
    assert "client_max_body_size" in caught.value.remedy or "body limit of the proxy" in caught.value.remedy


@needs_nginx
def test_a_big_wheel_passes_nginx_when_its_limit_allows(tmp_path: Path, settings: Settings, console: Console) -> None:
    wheel = make_wheel(tmp_path, files={"minitorch/data": bytes(40 << 20)})
    with pypiserver(tmp_path / "server") as inner:
        location = f"client_max_body_size 0; proxy_pass http://127.0.0.1:{inner.port};"
        with nginx(tmp_path / "nginx", location) as outer:
            publish([wheel], outer.url, settings=settings, console=console)
        assert (inner.files / wheel.name).read_bytes() == wheel.read_bytes()


@needs_nginx
def test_nginx_keeps_half_an_upload_from_the_index_behind_it(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"minitorch/data": bytes(8 << 20)})
    with pypiserver(tmp_path / "server", engine="wsgiref") as inner:
        location = f"client_max_body_size 0; proxy_pass http://127.0.0.1:{inner.port};"
        with nginx(tmp_path / "nginx", location) as outer:
            send_half(outer.port, wheel)
            time.sleep(1)
        assert list(inner.files.iterdir()) == []


def send_half(port: int, wheel: Path) -> None:
    """Begin an upload and hang up."""
    head = (
        b'--b\r\nContent-Disposition: form-data; name=":action"\r\n\r\nfile_upload\r\n--b\r\nContent-Disposition: '
        b'form-data; name="content"; filename="' + wheel.name.encode() + b'"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        length = len(head) + wheel.stat().st_size + len(b"\r\n--b--\r\n")
        connection.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Content-Length: " + str(length).encode() + b"\r\n\r\n" + head + wheel.read_bytes()[: 4 << 20]
        )


@needs_nginx
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_static_directory_behind_nginx_is_an_index(
    tool: Tool, tmp_path: Path, settings: Settings, console: Console
) -> None:
    core = make_wheel(tmp_path / "dist", name="zcore", version="1.0+rocm5.7")
    app = make_wheel(tmp_path / "dist", requires=["zcore ==1.0+rocm5.7"])
    static = tmp_path / "static"
    report = publish([app, core], f"dir:{static}", settings=settings, console=console)
    with nginx(tmp_path / "nginx", f"root {static}; index index.html;") as server:
        result = install_back(
            f"{server.url}simple/",
            "minitorch==0.1+rocm5.7",
            sys.executable,
            tool=tool,
            hashes=report.hashes(),
            environment=tmp_path / "env",
            console=console,
        )
        log = (server.files / "access.log").read_text()
    assert result.installed["zcore"] == "1.0+rocm5.7"
    if tool == "uv":  # pip does not read metadata files when hashes are required
        assert "%2Brocm5.7-py3-none-any.whl.metadata" in log


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_static_directory_installs_without_any_server(
    tool: Tool, tmp_path: Path, settings: Settings, console: Console
) -> None:
    wheel = make_wheel(tmp_path / "dist")
    report = publish([wheel], f"dir:{tmp_path / 'static'}", settings=settings, console=console)
    result = install_back(
        report.index_url,
        "minitorch==0.1+rocm5.7",
        sys.executable,
        tool=tool,
        hashes=report.hashes(),
        environment=tmp_path / "env",
        console=console,
    )
    assert result.installed["minitorch"] == "0.1+rocm5.7"
