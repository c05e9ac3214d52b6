"""What the colleague gets: one index that no higher public version beats, locked sets, an environment check."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from packaging.pylock import Pylock

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import InstallFailed, ServerUnreachable, UnmetDependency, UsageError
from rocm_wheels.publish import install_back, publish, why_not_installable
from rocm_wheels.publish.consume import consume, hashes, lock
from rocm_wheels.publish.install import Tool
from rocm_wheels.publish.serve import make_server
from rocm_wheels.publish.wheelhouse import wheelhouse
from tests.publish_wheels import make_wheel, sha256

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)
TORCH = "torchx==2.5.0+rocm5.7"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a static index of ``folder``."""
    with make_server(folder, console=CONSOLE, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        server.shutdown()


@pytest.fixture
def private(tmp_path: Path) -> Iterator[str]:
    """The team's index: a set of two, the second needs the first."""
    dist = tmp_path / "dist"
    wheels = [
        make_wheel(dist, name="torchx", version="2.5.0+rocm5.7", requires=["rocm-base ==1.0"]),
        make_wheel(dist, name="rocm-base", version="1.0"),
        make_wheel(dist, name="visx", version="0.20", requires=["torchx ==2.5.0"]),
    ]
    publish(wheels, f"dir:{tmp_path / 'private'}", settings=Settings(), console=CONSOLE)
    with served(tmp_path / "private") as url:
        yield url


@pytest.fixture
def public(tmp_path: Path) -> Iterator[str]:
    """Another index with a higher version of every name, as an attacker or the CUDA world would have it."""
    for name in ("torchx", "rocm-base", "visx"):
        make_wheel(tmp_path / "public", name=name, version="9.9")
    make_wheel(tmp_path / "public", name="llmx", version="1", requires=["torchx ==9.9"])
    with served(tmp_path / "public") as url:
        yield url


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_higher_public_version_of_every_name_does_not_win(
    tool: Tool, private: str, public: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", public)
    monkeypatch.setenv("UV_INDEX", public)
    locked = lock(private, [TORCH, "visx"], sys.executable, console=CONSOLE)
    assert {w.name: str(w.version) for w in locked} == {"torchx": "2.5.0+rocm5.7", "rocm-base": "1.0", "visx": "0.20"}
    result = install_back(
        private, TORCH, sys.executable, tool=tool, hashes=hashes(locked), environment=tmp_path / "env", console=CONSOLE
    )
    assert result.installed["rocm-base"] == "1.0" and result.installed["visx"] == "0.20"


def test_a_dependant_of_the_public_version_cannot_be_locked(private: str, tmp_path: Path) -> None:
    make_wheel(tmp_path / "private", name="llmx", version="1", requires=["torchx ==9.9"])
    with served(tmp_path / "private") as url:
        with pytest.raises(UnmetDependency, match="(?s)Cannot install llmx==1 and torchx"):
            lock(url, [TORCH, "llmx"], sys.executable, console=CONSOLE)


def test_an_index_that_does_not_answer_is_told_from_one_that_lacks_something(private: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServerUnreachable, match="does not answer"):
        lock(f"http://127.0.0.1:{port}/simple/", [TORCH], sys.executable, console=CONSOLE)


def test_files_for_another_platform_are_said_to_be_that(tmp_path: Path) -> None:
    make_wheel(tmp_path / "index", name="far", version="1", tag="py3-none-manylinux_2_99_x86_64")
    with served(tmp_path / "index") as url:
        with pytest.raises(UnmetDependency) as caught:
            lock(url, ["far==1"], sys.executable, console=CONSOLE)
    assert "platform" in caught.value.remedy


def test_the_files_name_one_index_and_install_the_set(private: str, tmp_path: Path) -> None:
    folder = tmp_path / "for-you"
    address = private.replace("//", "//me:very-secret@")
    written = consume(address, [TORCH], [sys.executable], folder, console=CONSOLE)
    texts = {path.name: path.read_text() for path in written.files}
    assert not [name for name, text in texts.items() if "very-secret" in text or "extra-index" in text]
    assert private in texts["pip.conf"] and tomllib.loads(texts["uv.toml"])["index"][0]["default"] is True
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    locked = Pylock.from_dict(tomllib.loads(texts[f"pylock.py{version.replace('.', '')}.toml"]))
    wheels = {str(p.name): p.wheels[0].hashes["sha256"] for p in locked.packages if p.wheels}
    assert wheels["torchx"] == sha256(next((tmp_path / "dist").glob("torchx*")))
    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", environment], check=True)
    python = environment / "bin" / "python"
    requirements = folder / f"requirements-{version}.txt"
    bare = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"}
    install = [str(python), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(requirements)]
    subprocess.run(install, check=True, env=bare)
    check = subprocess.run([python, folder / "verify_env.py", requirements], capture_output=True, text=True, env=bare)
    assert (check.returncode, check.stdout) == (0, "the environment is as published\n")


def test_a_later_install_that_swaps_the_set_is_found_by_the_check(private: str, public: str, tmp_path: Path) -> None:
    folder, environment = tmp_path / "for-you", tmp_path / "env"
    consume(private, [TORCH], [sys.executable], folder, console=CONSOLE)
    locked = lock(private, [TORCH], sys.executable, console=CONSOLE)
    install_back(
        private, TORCH, sys.executable, tool="pip", hashes=hashes(locked), environment=environment, console=CONSOLE
    )
    python = environment / "bin" / "python"
    bare = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"}
    subprocess.run([python, "-m", "pip", "install", "-q", "--index-url", public, "llmx"], check=True, env=bare)
    requirements = next(folder.glob("requirements-*.txt"))
    check = subprocess.run([python, folder / "verify_env.py", requirements], capture_output=True, text=True, env=bare)
    assert check.returncode == 1
    assert "torchx is 9.9, not 2.5.0+rocm5.7: another install has swapped it" in check.stdout


def test_a_companion_without_its_hash_does_not_come_in(private: str, tmp_path: Path) -> None:
    locked = [w for w in lock(private, [TORCH], sys.executable, console=CONSOLE) if w.name == "torchx"]
    with pytest.raises(InstallFailed, match="rocm-base"):
        install_back(
            private,
            TORCH,
            sys.executable,
            tool="pip",
            hashes=hashes(locked),
            environment=tmp_path / "env",
            console=CONSOLE,
        )


def test_an_interpreter_that_is_not_there_is_named(private: str, tmp_path: Path) -> None:
    with pytest.raises(InstallFailed, match=r"python9\.9"):
        install_back(private, TORCH, "python9.9", tool="pip", hashes={}, environment=tmp_path / "env", console=CONSOLE)


def test_why_not_installable_asks_the_interpreter_itself(tmp_path: Path) -> None:
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert why_not_installable(make_wheel(tmp_path, tag=f"{version}-{version}-linux_x86_64"), sys.executable) is None
    other = why_not_installable(make_wheel(tmp_path, tag="cp399-cp399-linux_x86_64"), sys.executable)
    newer = why_not_installable(make_wheel(tmp_path, tag=f"{version}-{version}-manylinux_2_99_x86_64"), sys.executable)
    assert "built for cp399-cp399" in str(other)
    assert "manylinux_2_99_x86_64 is newer than, or other than, this one (glibc" in str(newer)


def test_an_interpreter_that_only_complains_is_a_reason(tmp_path: Path) -> None:
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    assert "does not run: pyenv" in str(why_not_installable(make_wheel(tmp_path), str(shim)))
    assert "does not run: " in str(why_not_installable(make_wheel(tmp_path), "python9.9"))


def test_the_wheelhouse_closes_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    make_wheel(elsewhere, name="numpyx", version="2.1", requires=["basex"])
    make_wheel(elsewhere, name="basex", version="1")
    make_wheel(elsewhere, name="minitorch", version="9.9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(elsewhere))
    wheel = make_wheel(tmp_path / "dist", requires=["numpyx"])
    added = wheelhouse([wheel], [sys.executable], tmp_path / "house", console=CONSOLE)
    assert [p.name for p in added] == ["basex-1-py3-none-any.whl", "numpyx-2.1-py3-none-any.whl"]
    report = publish([wheel, *added], f"dir:{tmp_path / 'out'}", settings=Settings(), console=CONSOLE)
    assert report.warnings == ()
    with served(tmp_path / "out") as url:
        locked = lock(url, ["minitorch"], sys.executable, console=CONSOLE)
    assert [str(w.version) for w in locked if w.name == "minitorch"] == ["0.1+rocm5.7"]


def test_the_wheelhouse_refuses_nvidia_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path / "elsewhere", name="nvidia-cublas", version="1")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "elsewhere"))
    wheel = make_wheel(tmp_path / "dist", requires=["nvidia-cublas"])
    with pytest.raises(UnmetDependency, match="nvidia_cublas-1"):
        wheelhouse([wheel], [sys.executable], tmp_path / "house", console=CONSOLE)
    assert list((tmp_path / "house").iterdir()) == []


def test_the_server_gives_json_where_it_is_asked_for_and_no_hidden_files(private: str) -> None:
    page = requests.get(f"{private}torchx/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}, timeout=10)
    assert page.headers["Content-Type"] == "application/vnd.pypi.simple.v1+json"
    assert page.json()["name"] == "torchx"
    assert requests.get(f"{private}torchx/", timeout=10).headers["Content-Type"].startswith("text/html")
    assert requests.get(private.replace("simple/", ".rocm-wheels-index.json"), timeout=10).status_code == 404


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with make_server(tmp_path, console=CONSOLE, port=0) as server:
        with pytest.raises(UsageError, match="is in use"):
            make_server(tmp_path, console=CONSOLE, port=server.server_address[1])


def test_of_conflicting_sets_in_one_index_the_pinned_one_is_locked_whole(tmp_path: Path) -> None:
    """Nightlies: every day's framework fits that day's companions only (pypa/pip#13834)."""
    wheels = []
    for day in range(12):
        version = f"2.5.0.dev{day}+rocm5.7"
        wheels.append(make_wheel(tmp_path / "dist", "torchx", version, requires=[f"tritonx =={version}"]))
        wheels.append(make_wheel(tmp_path / "dist", "tritonx", version))
        wheels.append(make_wheel(tmp_path / "dist", "visx", f"0.20.dev{day}", requires=[f"torchx =={version}"]))
    report = publish(wheels, f"dir:{tmp_path / 'private'}", settings=Settings(), console=CONSOLE)
    with served(tmp_path / "private") as url:
        locked = lock(url, ["torchx==2.5.0.dev3+rocm5.7", "visx>=0.1.dev0"], sys.executable, console=CONSOLE)
        written = consume(url, ["visx==0.20.dev7"], [sys.executable], tmp_path / "for-you", console=CONSOLE)
    assert report.warnings == ()
    assert [str(w.version) for w in locked] == ["2.5.0.dev3+rocm5.7", "2.5.0.dev3+rocm5.7", "0.20.dev3"]
    pins = next(p for p in written.files if p.name.startswith("requirements-")).read_text()
    assert "torchx==2.5.0.dev7+rocm5.7" in pins and "tritonx==2.5.0.dev7+rocm5.7" in pins
