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
from rocm_wheels.config import PROJECT_ROOT
from rocm_wheels.console import Console
from rocm_wheels.layers import LayerOptions, make_layers
from rocm_wheels.publish import publish, why_not_installable

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
  $env/bin/python -I -c "import minitorch as m; a = m.tensor([[1, 2], [3, 4]]); print((a @ a).tolist(), m.cuda.reason())"
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
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    done = subprocess.run([sys.executable, "-m", "nox", "-s", "quickstart"], cwd=PROJECT_ROOT, check=False)
    assert done.returncode == 0
    folder = tmp_path_factory.mktemp("layers")
    wheels = sorted((PROJECT_ROOT / config.load().dist_dir / "fat").glob("*.whl"))
    make_layers(wheels, LayerOptions(), folder / "wheels", CONSOLE)
    publish((folder / "wheels").glob("*.whl"), f"dir:{folder / 'index'}", settings=config.load(), console=CONSOLE)
    yield folder / "index"
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
    assert verdicts["bookworm"].startswith("platform manylinux_2_39_x86_64 is newer than, or other than, this one (glibc")
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
    wrapper.write_text(f"#!/bin/sh\nexec {' '.join(command)} \"$@\"\n")
    wrapper.chmod(0o755)
    (core,) = index.glob("rocm_layers_core-*.whl")
    return str(why_not_installable(core, str(wrapper)))
