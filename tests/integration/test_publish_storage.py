"""Publishing to S3 (moto) and to an rsync daemon: the same promises as to a directory."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import CredentialsRefused, NameTaken, ReadBackMismatch, ServerUnreachable, UploadRefused
from rocm_wheels.publish import install_back, publish
from rocm_wheels.publish.rsync import RsyncClient
from rocm_wheels.publish.s3 import S3Client
from tests.publish_servers import free_port, has_nginx, nginx, rsyncd, s3
from tests.publish_wheels import make_wheel, sha256

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)
SECRET = "hunter2-very-secret"


@dataclass
class Place:
    """A storage under test: where to publish, where to read, and the files in it."""

    kind: str
    target: str
    files: Path
    api: Any = None

    def names(self) -> set[str]:
        if self.api is None:
            return {p.relative_to(self.files).as_posix() for p in self.files.rglob("*") if p.is_file()}
        listed = self.api.list_objects_v2(Bucket="wheels", Prefix="team/").get("Contents", ())
        return {entry["Key"].removeprefix("team/") for entry in listed}

    def read(self, name: str) -> bytes:
        if self.api is None:
            return (self.files / name).read_bytes()
        return bytes(self.api.get_object(Bucket="wheels", Key=f"team/{name}")["Body"].read())

    def write(self, name: str, content: bytes) -> None:
        if self.api is None:
            (self.files / name).write_bytes(content)
        else:
            self.api.put_object(Bucket="wheels", Key=f"team/{name}", Body=content)

    def remove(self, name: str) -> None:
        if self.api is None:
            (self.files / name).unlink()
        else:
            self.api.delete_object(Bucket="wheels", Key=f"team/{name}")


@pytest.fixture(params=["s3", "rsync"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kind = str(request.param)
    if kind == "s3":
        if not importlib.util.find_spec("moto"):
            pytest.skip("moto is not installed (pip install 'moto[s3,server]' boto3)")
        with s3(tmp_path / "s3") as server:
            use_s3(server.url, monkeypatch)
            api = S3Client.open("wheels", CONSOLE).api
            yield Place(kind, "s3://wheels/team", tmp_path, api)
        return
    if not shutil.which("rsync"):
        pytest.skip("rsync is not installed (apt-get install rsync)")
    monkeypatch.setenv("RSYNC_PASSWORD", SECRET)
    with rsyncd(tmp_path / "rsync", password=SECRET) as server:
        yield Place(kind, f"{server.url}/team", server.files / "team")


def use_s3(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "team")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("HOME", "/nonexistent")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache_dir=str(tmp_path / "cache"))


def bring(place: Place, wheels: list[Path], settings: Settings) -> list[str]:
    return [w.outcome for w in publish(wheels, place.target, settings=settings, console=CONSOLE).wheels]


def page(place: Place, project: str = "minitorch") -> list[str]:
    return [f["filename"] for f in json.loads(place.read(f"simple/{project}/index.json"))["files"]]


def test_a_set_is_stored_once_with_pages_that_name_it(place: Place, settings: Settings, tmp_path: Path) -> None:
    core = make_wheel(tmp_path / "dist", name="zcore", version="1.0+rocm5.7")
    app = make_wheel(tmp_path / "dist", requires=["zcore ==1.0+rocm5.7"])
    assert bring(place, [app, core], settings) == ["published", "published"]
    before = place.names()
    assert bring(place, [app, core], settings) == ["present", "present"]
    assert place.names() == before
    assert page(place) == [app.name]
    for path in (app, core):
        assert place.read(path.name) == path.read_bytes()
    assert {f"{app.name}.metadata", "index.html", "projects/minitorch.html", "simple/index.json"} <= before
    assert {f"{app.name.removesuffix('.whl')}.manifest.json"} <= before


def test_pip_and_uv_install_from_it(place: Place, settings: Settings, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "dist")
    report = publish([wheel], place.target, settings=settings, console=CONSOLE)
    if place.kind == "s3":
        install_with_both(served_by_s3(place, tmp_path), report.hashes(), tmp_path)
    elif not has_nginx():
        pytest.skip("nginx is not installed (apt-get install nginx-light)")
    else:
        with nginx(tmp_path / "nginx", f"root {place.files}; index index.html;") as server:
            install_with_both(f"{server.url}simple/", report.hashes(), tmp_path)


def served_by_s3(place: Place, tmp_path: Path) -> str:
    """S3 has no directory pages; web access to a bucket shows index.html for them. Mirrored here, bytes and types."""
    for name in place.names():
        path = tmp_path / "mirror" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(place.read(name))
    head = place.api.head_object(Bucket="wheels", Key="team/simple/minitorch/index.json")
    assert head["ContentType"] == "application/vnd.pypi.simple.v1+json"
    return (tmp_path / "mirror" / "simple").as_uri() + "/"


def install_with_both(url: str, hashes: dict[str, list[str]], tmp_path: Path) -> None:
    for tool in ("pip", "uv"):
        environment = tmp_path / tool
        install_back(
            url,
            "minitorch==0.1+rocm5.7",
            sys.executable,
            tool=tool,
            hashes=hashes,
            environment=environment,
            console=CONSOLE,
        )


def test_other_bytes_are_refused_before_anything_is_sent(place: Place, settings: Settings, tmp_path: Path) -> None:
    first = make_wheel(tmp_path / "one")
    bring(place, [first], settings)
    fresh = make_wheel(tmp_path / "two", name="atorch")
    other = make_wheel(tmp_path / "two", files={"minitorch/__init__.py": b"other = True\n"})
    with pytest.raises(NameTaken, match=sha256(other)):
        bring(place, [fresh, other], settings)
    assert fresh.name not in place.names()
    assert place.read(first.name) == first.read_bytes()


@pytest.mark.parametrize("lost", ["wheel", "claim", "pages"])
def test_a_publisher_that_died_half_way_is_continued(
    lost: str, place: Place, settings: Settings, tmp_path: Path
) -> None:
    wheel, other = make_wheel(tmp_path / "dist"), make_wheel(tmp_path / "dist", version="0.2+rocm5.7")
    bring(place, [other, wheel], settings)
    left = {
        "wheel": [wheel.name],
        "claim": [f"{wheel.name}.claim.json"],
        "pages": [name for name in place.names() if name.startswith(("simple/", "projects/"))],
    }[lost]
    for name in left:
        place.remove(name)
    bring(place, [other, wheel], Settings(cache_dir=str(tmp_path / "another machine")))
    assert page(place) == [wheel.name, other.name]
    assert place.read(wheel.name) == wheel.read_bytes()


def test_of_two_publishers_with_other_bytes_one_is_refused(place: Place, settings: Settings, tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path / n, files={"minitorch/data": n.encode() * 400_000}) for n in ("a", "b")]
    outcomes: list[object] = []

    def run(wheel: Path) -> None:
        try:
            outcomes.extend(bring(place, [wheel], Settings(cache_dir=str(wheel.parent / "cache"))))
        except (NameTaken, ReadBackMismatch) as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=run, args=(wheel,)) for wheel in wheels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert outcomes.count("published") == 1 and len(outcomes) == 2
    assert place.read(wheels[0].name) in [wheel.read_bytes() for wheel in wheels]


def test_publishers_of_different_wheels_at_once_are_all_on_the_page(
    place: Place, settings: Settings, tmp_path: Path
) -> None:
    wheels = [make_wheel(tmp_path / "dist", version=f"0.{n}+rocm5.7") for n in range(4)]
    threads = [
        threading.Thread(target=bring, args=(place, [w], Settings(cache_dir=str(tmp_path / w.name)))) for w in wheels
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert page(place) == [w.name for w in wheels]


def test_a_damaged_file_is_found_when_it_is_rechecked(place: Place, settings: Settings, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "dist", files={"minitorch/data": bytes(5000)})
    bring(place, [wheel], settings)
    place.write(wheel.name, wheel.read_bytes()[:-1000])
    with pytest.raises(ReadBackMismatch, match="does not hold the bytes"):
        publish([wheel], place.target, settings=settings, console=CONSOLE, recheck=True)


def test_a_wrong_password_of_rsync_is_named_and_shown_nowhere(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which("rsync"):
        pytest.skip("rsync is not installed (apt-get install rsync)")
    monkeypatch.setenv("RSYNC_PASSWORD", SECRET)
    with rsyncd(tmp_path / "rsync", password="another") as server, pytest.raises(CredentialsRefused) as caught:
        publish([make_wheel(tmp_path)], server.url, settings=settings, console=Console())
    out, err = capfd.readouterr()
    assert SECRET not in f"{caught.value}{out}{err}"
    assert "RSYNC_PASSWORD" in caught.value.remedy


def test_rsync_that_may_not_write_cannot_connect_or_lost_its_disk_says_so(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("rsync"):
        pytest.skip("rsync is not installed (apt-get install rsync)")
    monkeypatch.setattr("rocm_wheels.publish.simple.time.sleep", lambda _: None)
    wheel = make_wheel(tmp_path / "dist")
    with rsyncd(tmp_path / "rsync", read_only=True) as server, pytest.raises(UploadRefused, match="read only"):
        publish([wheel], server.url, settings=settings, console=CONSOLE)
    with pytest.raises(ServerUnreachable, match="Connection refused"):
        publish([wheel], f"rsync://127.0.0.1:{free_port()}/wheels", settings=settings, console=CONSOLE)


def test_an_rsync_daemon_killed_in_the_middle_is_continued(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("rsync"):
        pytest.skip("rsync is not installed (apt-get install rsync)")
    monkeypatch.setattr("rocm_wheels.publish.rsync.ATTEMPTS", 1)
    wheel = make_wheel(tmp_path / "dist", files={"minitorch/data": bytes(96 << 20)})
    real, run = RsyncClient.upload, RsyncClient._run
    # Slow enough that the daemon is still writing when it is killed.
    monkeypatch.setattr(RsyncClient, "_run", lambda self, *words, **more: run(self, "--bwlimit=30m", *words, **more))

    def killed(self: RsyncClient, dist: Any) -> None:
        done = threading.Thread(target=kill_children_of_daemon, args=(tmp_path / "rsync",))
        done.start()
        try:
            real(self, dist)
        finally:
            done.join()

    monkeypatch.setattr(RsyncClient, "upload", killed)
    with rsyncd(tmp_path / "rsync") as server:
        with pytest.raises(ServerUnreachable):
            publish([wheel], server.url, settings=settings, console=CONSOLE)
        assert wheel.name not in {p.name for p in server.files.iterdir()}
        monkeypatch.setattr(RsyncClient, "upload", real)
        publish([wheel], server.url, settings=settings, console=CONSOLE)
        assert (server.files / wheel.name).read_bytes() == wheel.read_bytes()


def kill_children_of_daemon(folder: Path) -> None:
    """SIGKILL the process that serves an upload as soon as it has written a part of it."""
    import psutil

    for _ in range(2000):
        if any(p.stat().st_size for p in (folder / "files").rglob(".minitorch*.whl.*")):
            break
        time.sleep(0.005)
    else:
        raise AssertionError("rsync wrote nothing")
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] and f"--config={folder / 'rsyncd.conf'}" in process.info["cmdline"]:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in process.children(recursive=True):
                    child.kill()


def test_s3_without_bucket_or_key_or_server_is_named(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not importlib.util.find_spec("moto"):
        pytest.skip("moto is not installed (pip install 'moto[s3,server]' boto3)")
    wheel = make_wheel(tmp_path / "dist")
    with s3(tmp_path / "s3") as server:
        use_s3(server.url, monkeypatch)
        with pytest.raises(UploadRefused, match="NoSuchBucket"):
            publish([wheel], "s3://nowhere/team", settings=settings, console=CONSOLE)
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with pytest.raises(CredentialsRefused) as caught:
            publish([wheel], "s3://wheels/team", settings=settings, console=CONSOLE)
        assert SECRET not in str(caught.value)
    use_s3(f"http://127.0.0.1:{free_port()}/", monkeypatch)
    with pytest.raises(ServerUnreachable, match="Could not connect"):
        publish([wheel], "s3://wheels/team", settings=settings, console=CONSOLE)


def test_an_rsync_address_with_a_password_is_refused(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(Exception, match="takes no password") as caught:
        publish([make_wheel(tmp_path)], f"rsync://me:{SECRET}@h/wheels", settings=settings, console=CONSOLE)
    assert SECRET not in str(caught.value)
