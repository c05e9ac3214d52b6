"""Layers for three Pythons on every kind of index: installed by one command, whatever a public index offers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import UnmetDependency
from rocm_wheels.layers import LayerOptions, make_layers
from rocm_wheels.publish import install_back, publish
from rocm_wheels.publish.consume import consume, hashes, lock
from rocm_wheels.publish.install import Tool
from rocm_wheels.publish.serve import make_server
from tests.layers_fixtures import ARCHS, TAG, Rocm, cold_load, make_framework
from tests.publish_servers import index_server
from tests.publish_wheels import make_wheel

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)
DEMO = "demo==1.0+rocm5.7"
OTHER_PYTHONS = ("cp398-cp398-linux_x86_64", "cp399-cp399-linux_x86_64")


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Base wheels, the framework for three Pythons, and one that depends on its public version."""
    root = tmp_path_factory.mktemp("layers")
    rocm = Rocm(root / "rocm")
    fat = [make_framework(root, rocm, tag=tag) for tag in (TAG, *OTHER_PYTHONS)]
    make_layers(fat, LayerOptions(), root / "out", CONSOLE)
    make_wheel(root / "out", name="vision", version="0.5", requires=["demo ==1.0"])
    return sorted((root / "out").glob("*.whl"))


@pytest.fixture
def public(tmp_path: Path, layered: list[Path]) -> Iterator[str]:
    """An index with a higher version of every name."""
    for name in {path.name.partition("-")[0].replace("_", "-") for path in layered}:
        make_wheel(tmp_path / "public", name=name, version="99")
    with served(tmp_path / "public") as url:
        yield url


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    with make_server(folder, console=CONSOLE, port=0) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
        server.shutdown()


@pytest.mark.parametrize("kind", ["pypiserver", "devpi", "nginx"])
def test_layers_install_by_one_command_and_load_cold(
    kind: str, layered: list[Path], public: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TWINE_USERNAME", "team")
    monkeypatch.setenv("TWINE_PASSWORD", "pass-of-team")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", public)
    monkeypatch.setenv("UV_INDEX", public)
    with index_server(kind, tmp_path, layered, Settings(cache_dir=str(tmp_path / "cache"))) as url:
        locked = lock(url, [DEMO, "vision"], sys.executable, console=CONSOLE)
        assert {w.name for w in locked} == {
            "demo",
            "vision",
            "rocm-layers-core",
            "rocm-layers-libraries",
            *(f"rocm-layers-device-{arch}" for arch in ARCHS),
        }
        assert not [w for w in locked if str(w.version) == "99"]
        for tool in ("pip", "uv"):
            check_installation(tool, url, locked_hashes=hashes(locked), folder=tmp_path / tool)


def check_installation(tool: Tool, url: str, *, locked_hashes: dict[str, list[str]], folder: Path) -> None:
    install_back(url, DEMO, sys.executable, tool=tool, hashes=locked_hashes, environment=folder, console=CONSOLE)
    site = next((folder / "lib").glob("python*/site-packages"))
    libraries = [*site.glob("demo/**/*.so"), *site.glob("_rocm_layers_*/lib/*.so*")]
    assert len(libraries) == 7
    for library in libraries:
        assert not [path for path in cold_load(library) if "rocm" in path and not path.startswith(str(site))]


def test_an_extra_brings_the_data_of_one_gpu_only(tmp_path: Path) -> None:
    fat = make_framework(tmp_path, Rocm(tmp_path / "rocm"))
    make_layers([fat], LayerOptions(device_extras=True), tmp_path / "out", CONSOLE)
    report = publish(
        (tmp_path / "out").glob("*.whl"), f"dir:{tmp_path / 'static'}", settings=Settings(), console=CONSOLE
    )
    wanted = "demo[gfx1030]==1.0+rocm5.7"
    locked = lock(report.index_url, [wanted], sys.executable, console=CONSOLE)
    result = install_back(
        report.index_url,
        wanted,
        sys.executable,
        tool="uv",
        hashes=hashes(locked),
        environment=tmp_path / "env",
        console=CONSOLE,
    )
    assert "rocm-layers-device-gfx1030" in result.installed
    assert "rocm-layers-device-gfx1100" not in result.installed


def test_a_dependant_of_another_public_version_cannot_swap_the_framework_unnoticed(
    layered: list[Path], public: str, tmp_path: Path
) -> None:
    greedy = make_wheel(tmp_path / "dist", name="greedy", version="1", requires=["demo ==99"])
    make_wheel(tmp_path / "public", name="greedy", version="1", requires=["demo ==99"])
    publish(layered, f"dir:{tmp_path / 'static'}", settings=Settings(), console=CONSOLE)
    with pytest.raises(UnmetDependency, match=r"greedy-1-.* requires demo==99"):
        publish([greedy], f"dir:{tmp_path / 'static'}", settings=Settings(), console=CONSOLE)
    environment, files = tmp_path / "env", tmp_path / "for-you"
    with served(tmp_path / "static") as url, served(tmp_path / "public") as other:
        consume(url, [DEMO], [sys.executable], files, console=CONSOLE)
        locked = hashes(lock(url, [DEMO], sys.executable, console=CONSOLE))
        install_back(url, DEMO, sys.executable, tool="pip", hashes=locked, environment=environment, console=CONSOLE)
        python = environment / "bin" / "python"
        bare = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null"}
        requirements = next(files.glob("requirements-*.txt"))
        check = [str(python), str(files / "verify_env.py"), str(requirements)]
        assert subprocess.run(check, capture_output=True, env=bare).returncode == 0
        greedily = [str(python), "-m", "pip", "install", "-q", "--index-url", other, "greedy"]
        subprocess.run(greedily, check=True, env=bare)
        found = subprocess.run(check, capture_output=True, text=True, env=bare)
    assert found.returncode == 1
    assert "demo is 99, not 1.0+rocm5.7: another install has swapped it" in found.stdout
