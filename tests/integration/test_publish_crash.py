"""A publisher or a server that dies in the middle: the rerun finishes and nothing half done stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import ReadBackMismatch, RocmWheelsError, ServerFull
from rocm_wheels.publish import publish
from tests.publish_servers import pypiserver
from tests.publish_wheels import make_wheel, sha256

pytestmark = pytest.mark.integration
CODE = """
import sys
from pathlib import Path
from rocm_wheels.config import Settings
from rocm_wheels.console import Console, exit_codes, print_json
from rocm_wheels.publish import publish
with exit_codes():
    settings = Settings(cache_dir=sys.argv[1])
    print_json(publish(map(Path, sys.argv[3:]), sys.argv[2], settings=settings, console=Console()).as_dict())
"""


def start(cache: Path, target: str, *wheels: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE, str(cache), target, *map(str, wheels)]
    environment = {**os.environ, "HOME": str(cache)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def wait_for(cache: Path, event: str) -> None:
    for _ in range(1000):
        if any(event in path.read_text() for path in cache.rglob("*.jsonl")):
            return
        time.sleep(0.01)
    raise AssertionError(f"no {event} in the journal")


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    return [make_wheel(tmp_path / "dist", name=f"part{n}", files={f"part{n}/data": bytes(24 << 20)}) for n in range(3)]


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3, 0.6])
def test_a_killed_publisher_is_continued_by_the_next_run(delay: float, wheels: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pypiserver(tmp_path / "server") as server:
        first = start(cache, server.url, *wheels)
        wait_for(cache, "sending")
        time.sleep(delay)
        first.send_signal(signal.SIGKILL)
        finish(first)
        code, out, err = finish(start(cache, server.url, *wheels))
        assert code == 0, err
        assert {p.name: sha256(p) for p in server.files.iterdir()} == {p.name: sha256(p) for p in wheels}
    assert len(json.loads(out)["wheels"]) == 3


def test_a_killed_server_ends_in_a_message_and_its_successor_gets_the_rest(wheels: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pypiserver(tmp_path / "server") as server:
        process = start(cache, server.url, *wheels)
        wait_for(cache, "stored")
    code, _, err = finish(process)
    assert code in (0, 95), err
    assert "Traceback" not in err
    with pypiserver(tmp_path / "server", port=server.port) as again:
        code, _, err = finish(start(cache, again.url, *wheels))
        assert code == 0, err
        assert {p.name: sha256(p) for p in again.files.iterdir()} == {p.name: sha256(p) for p in wheels}


def test_half_an_upload_that_a_server_kept_is_named_and_the_rerun_finishes_without_it(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "dist", files={"minitorch/data": bytes(3 << 20)})
    settings = Settings(cache_dir=str(tmp_path / "cache"))
    # pypiserver over wsgiref stores what has come when a connection breaks, and lists it like a whole file.
    with pypiserver(tmp_path / "server", engine="wsgiref") as server:
        (server.files / wheel.name).write_bytes(wheel.read_bytes()[: 1 << 20])
        with pytest.raises(ReadBackMismatch, match="kept 1048576 of ") as caught:
            publish([wheel], server.url, settings=settings, console=Console())
        assert "once waitress is installed" in caught.value.remedy
        (server.files / wheel.name).unlink()
        assert publish([wheel], server.url, settings=settings, console=Console()).wheels[0].outcome == "published"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A server folder with room for 1 MiB."""
    folder = tmp_path / "server"
    (folder / "files").mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder / "files")]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder / "files")], check=True)


def test_a_full_disk_on_the_server_is_named_and_the_rerun_finishes(small_disk: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "dist", files={"minitorch/data": bytes(3 << 20)})
    settings = Settings(cache_dir=str(tmp_path / "cache"))
    with pypiserver(small_disk) as server:
        with pytest.raises(RocmWheelsError) as caught:
            publish([wheel], server.url, settings=settings, console=Console())
        assert isinstance(caught.value, (ServerFull, ReadBackMismatch)), caught.value
        assert "free space on the server" in caught.value.remedy
        subprocess.run(["mount", "-o", "remount,size=9m", str(server.files)], check=True)
        (server.files / wheel.name).unlink(missing_ok=True)
        assert publish([wheel], server.url, settings=settings, console=Console()).wheels[0].outcome == "published"
