"""Downloads that broke off go on where they stopped, and are checked whatever the server says."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import PinMismatch, SourceUnreachable
from rocm_wheels.release import Archive
from rocm_wheels.source import fetch

BODY = bytes(range(256)) * 40
OLD = bytes(reversed(BODY))


@dataclass
class Server:
    """Answers with ``body``, at most ``limit`` bytes of it; ``ranges`` lists what was asked for."""

    url: str = ""
    body: bytes = BODY
    etag: str = '"one"'
    limit: int = len(BODY)
    honest: bool = True
    password: str = ""
    ranges: list[str] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range", "")
            state.ranges.append(asked)
            wanted = "Basic " + base64.b64encode(f"me:{state.password}".encode()).decode()
            if state.password and self.headers.get("Authorization") != wanted:
                self.send_error(401)
                return
            start = 0
            if asked and (not state.honest or self.headers.get("If-Range") == state.etag):
                start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(state.body):
                self.send_error(416)
                return
            rest = state.body[start:]
            self.send_response(206 if start else 200)
            if state.etag:
                self.send_header("ETag", state.etag)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: state.limit])

        def log_message(self, format: str, *args: object) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{running.server_port}/a.tar"
    yield state
    running.shutdown()
    running.server_close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=str(tmp_path / "cache"))


def archive(*urls: str) -> Archive:
    return Archive(urls=urls, sha256=hashlib.sha256(BODY).hexdigest())


def download(settings: Settings, *urls: str) -> Path:
    return fetch.download(archive(*urls), settings=settings, console=Console(quiet=True))


def broken_off(server: Server, settings: Settings, at: int) -> None:
    limit, server.limit = server.limit, at
    with pytest.raises(SourceUnreachable, match=f"broke off after {at} of"):
        download(settings, server.url)
    server.limit = limit


def left(settings: Settings) -> list[str]:
    return sorted(p.name for p in (settings.cache / "archives").iterdir() if not p.name.endswith(".lock"))


def test_the_second_attempt_asks_for_the_rest_only(server: Server, settings: Settings) -> None:
    broken_off(server, settings, 1000)
    assert download(settings, server.url).read_bytes() == BODY
    assert server.ranges == ["", "bytes=1000-"]
    assert len(left(settings)) == 1


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(server: Server, settings: Settings) -> None:
    server.body = OLD
    broken_off(server, settings, 1000)
    server.body, server.etag = BODY, '"two"'
    assert download(settings, server.url).read_bytes() == BODY


def test_a_server_that_mixes_two_files_is_found_out_by_the_hash(server: Server, settings: Settings) -> None:
    server.body, server.honest = OLD, False
    broken_off(server, settings, 1000)
    server.body = BODY
    assert download(settings, server.url).read_bytes() == BODY
    assert server.ranges == ["", "bytes=1000-", ""]


@pytest.mark.parametrize("etag", ["", 'W/"one"'])
def test_without_a_strong_mark_nothing_is_gone_on_with(server: Server, settings: Settings, etag: str) -> None:
    server.etag = etag
    broken_off(server, settings, 1000)
    assert download(settings, server.url).read_bytes() == BODY
    assert server.ranges == ["", ""]


def test_the_beginning_of_another_address_is_not_used(server: Server, settings: Settings) -> None:
    broken_off(server, settings, 1000)
    assert download(settings, f"{server.url}?other", server.url).read_bytes() == BODY
    assert server.ranges == ["", ""]


def test_a_whole_file_that_was_never_renamed_is_taken_after_a_fresh_download(
    server: Server, settings: Settings
) -> None:
    broken_off(server, settings, 1000)
    (part,) = [p for p in (settings.cache / "archives").iterdir() if p.name.endswith(".part")]
    part.write_bytes(BODY)
    assert download(settings, server.url).read_bytes() == BODY
    assert server.ranges[-2:] == [f"bytes={len(BODY)}-", ""]


def test_wrong_content_is_not_kept(server: Server, settings: Settings) -> None:
    server.body = OLD
    with pytest.raises(PinMismatch):
        download(settings, server.url)
    assert left(settings) == []


def test_credentials_reach_the_server_and_no_message_or_file(server: Server, settings: Settings) -> None:
    server.password = "s3cr@t"
    address = server.url.replace("//", "//me:s3cr%40t@")
    broken = dataclasses.replace(settings, cache_dir=f"{settings.cache_dir}-2")
    assert download(settings, address).read_bytes() == BODY
    server.limit = 10
    with pytest.raises(SourceUnreachable) as caught:
        download(broken, address)
    assert "s3cr" not in str(caught.value)
    assert all(b"s3cr" not in p.read_bytes() for p in broken.cache.rglob("*") if p.is_file())
