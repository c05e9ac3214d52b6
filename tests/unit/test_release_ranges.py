"""One member of an archive on a server, by HTTP ranges where it can and as a whole where it cannot."""

from __future__ import annotations

import http.server
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.release.ranges import read_member


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Serves files, by ranges unless ``ranges`` is off; counts the bytes."""

    ranges = True
    sent = 0

    def do_GET(self) -> None:
        data = Path(self.translate_path(self.path)).read_bytes()
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        start, _, end = asked.partition("-")
        part = data
        if asked and self.ranges:
            first = int(start) if start else max(0, len(data) - int(end))
            part = data[first : int(end) + 1 if start and end else None]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)
        type(self).sent += len(part)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Ranges, "sent", 0)
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


def test_one_member_costs_a_small_part_of_the_archive(server: str, tmp_path: Path) -> None:
    big = {f"f{n}": bytes(1 << 20) for n in range(3)} | {"torch/version.py": b"hello"}
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_STORED) as archive:
        for name, data in big.items():
            archive.writestr(name, data)
    assert read_member(f"{server}/a.zip", "torch/version.py") == b"hello"
    assert Ranges.sent < 400_000
    with pytest.raises(KeyError):
        read_member(f"{server}/a.zip", "missing")


def test_a_server_without_ranges_gives_the_whole(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranges, "ranges", False)
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/version.py", b"hello")
    assert read_member(f"{server}/{path.name}", "torch/version.py") == b"hello"
