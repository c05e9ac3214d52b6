"""minitorch in layers on three Debian releases that have no network but the closed index.

Wheels come from the main job, which is run first if it has not been. Takes minutes: three systems are bootstrapped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import packaging
import pytest

from rocm_wheels import config
from rocm_wheels.build.container import ContainerEngine
from rocm_wheels.build.engine import Mount, find_engine
from rocm_wheels.build.setup import ensure_packages
from rocm_wheels.config import PROJECT_ROOT, Settings
from rocm_wheels.console import Console
from rocm_wheels.layers import LayerOptions, make_layers
from rocm_wheels.publish import publish, verify_env, why_not_installable
from rocm_wheels.publish.dist import open_dist, sha256_of
from rocm_wheels.publish.install import requirements_with_hashes
from tests.publish_servers import index_server

pytestmark = pytest.mark.slow
CONSOLE = Console()
SUITES = ("bookworm", "trixie", "sid")
REQUIREMENT = "minitorch==0.1.0+rocm5.7"

# Runs in a network namespace that has no interface up, so that nothing but the mounted index can be read.
SCRIPT = r"""
set -e
url=file:///index/simple/
if python3 -c "import socket; socket.create_connection(('192.0.2.1', 80), 2)" 2>/tmp/said; then exit 99; fi
grep "Network is unreachable" /tmp/said
python3 -m venv /tmp/pip
/tmp/pip/bin/pip install --quiet --disable-pip-version-check --index-url $url "$1"
python3 -m venv --without-pip /tmp/uv
/uv pip install --quiet --no-config --no-cache --default-index $url --python /tmp/uv/bin/python "$1"
for env in /tmp/pip /tmp/uv; do
  cd $env/lib/python3*/site-packages
  for file in minitorch/*.so minitorch/lib/*.so* _rocm_layers_*/lib/*.so*; do
    $env/bin/python -I -c "import ctypes, sys; ctypes.CDLL(sys.argv[1])" $PWD/$file
    echo "loaded $file"
  done
  $env/bin/python -I -c "import minitorch as m
a = m.tensor([[1, 2], [3, 4]])
print((a @ a).tolist(), m.cuda.reason())"
done
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[ContainerEngine]:
    settings = config.load()
    ensure_packages("base", CONSOLE)
    with find_engine(settings.engine, console=CONSOLE, settings=settings) as found:
        assert isinstance(found, ContainerEngine)
        yield found


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    done = subprocess.run([sys.executable, "-m", "nox", "-s", "quickstart"], cwd=PROJECT_ROOT, check=False)
    assert done.returncode == 0
    folder = tmp_path_factory.mktemp("layers")
    wheels = sorted((PROJECT_ROOT / config.load().dist_dir / "fat").glob("*.whl"))
    make_layers(wheels, LayerOptions(), folder, CONSOLE)
    yield sorted(folder.glob("*.whl"))
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def index(layered: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("index")
    publish(layered, f"dir:{folder}", settings=config.load(), console=CONSOLE)
    yield folder
    shutil.rmtree(folder)


def base_image(engine: ContainerEngine, suite: str, folder: Path) -> str:
    """The smallest system of ``suite`` with Python, pip and venv, made once."""
    name = f"localhost/rocm-wheels-test/{suite}:latest"
    if not engine.image_exists(name):
        tar = folder / f"{suite}.tar"
        stale = ['--aptopt=Acquire::Check-Valid-Until "false"'] if suite == "sid" else []
        packages = "--include=python3,python3-pip,python3-venv"
        command = ["mmdebstrap", "--variant=minbase", packages, *stale, suite, str(tar)]
        subprocess.run(command, check=True, capture_output=True)
        engine.import_base(tar, name)
        tar.unlink()
    return name


def test_layers_install_and_load_from_the_closed_index_or_say_why_not(
    engine: ContainerEngine, index: Path, tmp_path: Path
) -> None:
    verdicts = {suite: run_on(engine, suite, index, tmp_path) for suite in SUITES}
    assert verdicts["bookworm"].startswith(
        "platform manylinux_2_39_x86_64 is newer than, or other than, this one (glibc"
    )
    assert verdicts["trixie"] == "loaded"
    assert verdicts["sid"] == "loaded"


def run_on(engine: ContainerEngine, suite: str, index: Path, folder: Path) -> str:
    image = base_image(engine, suite, folder)
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    assert uv
    lines: list[str] = []
    code = engine.run(
        image,
        ["unshare", "--net", "sh", "-c", SCRIPT, "sh", REQUIREMENT],
        mounts=(Mount(index, "/index", read_only=True), Mount(Path(uv), "/uv", read_only=True)),
        may_mount=True,
        on_line=lines.append,
    )
    said = "\n".join(lines)
    if code == 0:
        assert said.count("loaded ") == 2 * 23, said
        assert said.count("[[7.0, 10.0], [15.0, 22.0]] hipGetDeviceCount gives error 100") == 2
        return "loaded"
    assert "No matching distribution found for rocm-layers-core==" in said, said
    return reason(engine, image, index, folder)


def reason(engine: ContainerEngine, image: str, index: Path, folder: Path) -> str:
    """What this project says of the base wheel and the Python of ``image``."""
    library = Path(packaging.__file__).parent.parent
    wrapper = folder / "python"
    command = engine._command("run", "--rm", "--volume", f"{library}:{library}:ro", image, "python3")
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
    wrapper.chmod(0o755)
    (core,) = index.glob("rocm_layers_core-*.whl")
    return str(why_not_installable(core, str(wrapper)))


# Installs by the hashes of the published set, whatever a greedy second index in pip's configuration offers.
BY_HASH = r"""
set -e
python3 -m venv /tmp/env
/tmp/env/bin/pip install --quiet --disable-pip-version-check --require-hashes --index-url "$1" -r /set/requirements.txt
/tmp/env/bin/python /set/verify_env.py /set/requirements.txt
/tmp/env/bin/python -I -c "import minitorch as m; a = m.tensor([[1, 2], [3, 4]]); print((a @ a).tolist())"
"""


@pytest.mark.parametrize("kind", ["pypiserver", "devpi", "nginx"])
def test_every_kind_of_server_hands_out_the_real_layers(
    kind: str, engine: ContainerEngine, layered: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINE_USERNAME", "team")
    monkeypatch.setenv("TWINE_PASSWORD", "pass-of-team")
    image = base_image(engine, "trixie", tmp_path)
    settings = Settings(cache_dir=str(tmp_path / "cache"))
    with index_server(kind, tmp_path, layered, settings) as url:
        files = tmp_path / "set"
        files.mkdir()
        (files / "requirements.txt").write_text(requirements_with_hashes(hashes_of(layered)))
        shutil.copyfile(str(verify_env.__file__), files / "verify_env.py")
        lines: list[str] = []
        mounts = (Mount(files, "/set", read_only=True),)
        code = engine.run(
            image, ["sh", "-c", BY_HASH, "sh", url], mounts=mounts, host_network=True, on_line=lines.append
        )
    assert code == 0, lines
    assert "the environment is as published" in lines and "[[7.0, 10.0], [15.0, 22.0]]" in lines
    shutil.rmtree(tmp_path)


def hashes_of(wheels: list[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for wheel in wheels:
        found.setdefault(open_dist(wheel).requirement, []).append(sha256_of(wheel))
    return found
