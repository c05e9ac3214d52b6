"""Slim against the real thing: hipcc's libraries, comgr's own reader of bundles, LLVM's tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels import config
from rocm_wheels.build.engine import ContainerEngine, Mount, find_engine
from rocm_wheels.build.image import ensure_image
from rocm_wheels.console import Console
from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.cut import apply_pieces
from rocm_wheels.elf.offload import SECTION, read_bundles
from rocm_wheels.errors import PackagesMissing
from rocm_wheels.release import load_matrix
from rocm_wheels.slim.library import plan_library, slim_library

pytestmark = pytest.mark.integration

MANY = ("gfx900", "gfx906", "gfx1030", "gfx1100")
KERNEL = """
#include <hip/hip_runtime.h>
__global__ void NAME(float *a, const float *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += b[i];
}
extern "C" void launch_NAME(float *a, const float *b, int n) { NAME<<<(n + 255) / 256, 256>>>(a, b, n); }
"""

# What the HIP runtime does without a device: register the bundles at load time, let comgr look its code object up.
LOOK = """
import ctypes, json, sys
class Info(ctypes.Structure):
    _fields_ = [("isa", ctypes.c_char_p), ("size", ctypes.c_size_t), ("offset", ctypes.c_uint64)]
class Data(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64)]
comgr = ctypes.CDLL("libamd_comgr.so.2")
library, offsets, archs = ctypes.CDLL(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
launch = library.launch_first
section = open(sys.argv[1] + ".fatbin", "rb").read()
found = []
for offset in offsets:
    data = Data()
    assert comgr.amd_comgr_create_data(0x10, ctypes.byref(data)) == 0
    bundle = section[offset:]
    assert comgr.amd_comgr_set_data(data, ctypes.c_size_t(len(bundle)), bundle) == 0
    infos = (Info * len(archs))(*(Info(f"amdgcn-amd-amdhsa--{a}".encode(), 0, 0) for a in archs))
    assert comgr.amd_comgr_lookup_code_object(data, infos, ctypes.c_size_t(len(archs))) == 0
    found.append({a: bundle[i.offset:i.offset + i.size].hex() for a, i in zip(archs, infos) if i.size})
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ContainerEngine, str, Path]]:
    """Engine, image, and a folder with ``many.so`` for four GPUs and ``one.so`` for one of them, both by hipcc."""
    folder = tmp_path_factory.mktemp("slim")
    for name in ("first", "second"):
        (folder / f"{name}.hip").write_text(KERNEL.replace("NAME", name))
    (folder / "look.py").write_text(LOOK)
    try:
        engine = find_engine(console=Console(quiet=True), settings=config.load())
    except PackagesMissing as error:
        pytest.skip(str(error))
    assert isinstance(engine, ContainerEngine)
    with engine:
        row = load_matrix().images["debian-trixie"]
        image = ensure_image(row, engine=engine, settings=config.load(), console=Console()).tag
        for name, archs in (("many", MANY), ("one", ("gfx1030",))):
            options = " ".join(f"--offload-arch={arch}" for arch in archs)
            script = f"cd /work && hipcc -shared -fPIC -O2 {options} -o {name}.so first.hip second.hip"
            in_image(engine, image, folder, script)
        yield engine, image, folder


def in_image(engine: ContainerEngine, image: str, folder: Path, script: str) -> list[str]:
    lines: list[str] = []
    code = engine.run(image, ["bash", "-ec", script], mounts=(Mount(folder, "/work"),), on_line=lines.append)
    assert code == 0, "\n".join(lines)
    return lines


def cut(folder: Path, name: str, *archs: str) -> None:
    """Write ``name`` made from ``many.so``."""
    elf = ElfFile.parse((folder / "many.so").read_bytes(), "many.so")
    library = plan_library(elf, archs)
    assert library is not None
    (folder / name).write_bytes(b"".join(apply_pieces(elf.bytes_at(0, elf.size), slim_library(elf, library))))


def looked_up(engine: ContainerEngine, image: str, folder: Path, name: str) -> list[dict[str, str]]:
    elf = ElfFile.parse((folder / name).read_bytes(), name)
    (folder / f"{name}.fatbin").write_bytes(bytes(elf.section_bytes(SECTION)))
    offsets = json.dumps([bundle.offset for bundle in read_bundles(elf)])
    command = f"python3 /work/look.py /work/{name} '{offsets}' '{json.dumps(MANY)}'"
    found: list[dict[str, str]] = json.loads(in_image(engine, image, folder, command)[-1])
    return found


def test_comgr_finds_in_the_slim_library_what_it_finds_in_the_fat_one(
    built: tuple[ContainerEngine, str, Path],
) -> None:
    engine, image, folder = built
    cut(folder, "slim.so", "gfx1030")
    many, slim = (looked_up(engine, image, folder, name) for name in ("many.so", "slim.so"))
    assert len(slim) == 2 and set(many[0]) == set(MANY)
    assert slim == [{"gfx1030": each["gfx1030"]} for each in many]


def test_slim_carries_the_code_of_a_library_built_for_that_gpu_alone(built: tuple[ContainerEngine, str, Path]) -> None:
    engine, image, folder = built
    cut(folder, "slim.so", "gfx1030")
    assert looked_up(engine, image, folder, "slim.so") == looked_up(engine, image, folder, "one.so")
    sizes = {name: (folder / name).stat().st_size for name in ("many.so", "slim.so", "one.so")}
    assert sizes["slim.so"] - sizes["one.so"] < 8192 < sizes["many.so"] - sizes["slim.so"]


def test_llvm_lists_exactly_the_kept_targets(built: tuple[ContainerEngine, str, Path]) -> None:
    engine, image, folder = built
    cut(folder, "two.so", "gfx906", "gfx1100")
    script = "cd /work && /usr/lib/llvm-17/bin/llvm-objdump --offloading two.so && readelf -lW two.so"
    listed = in_image(engine, image, folder, script)
    assert not [line for line in listed if "warning" in line.lower() or "error" in line.lower()]
    elf = ElfFile.parse((folder / "two.so").read_bytes(), "two.so")
    (folder / "bundle").write_bytes(bytes(elf.section_bytes(SECTION))[: read_bundles(elf)[0].size])
    bundler = "/usr/lib/llvm-17/bin/clang-offload-bundler --list --type=o --input=/work/bundle"
    targets = in_image(engine, image, folder, bundler)
    assert {line.rpartition("--")[2] for line in targets if "gfx" in line} == {"gfx906", "gfx1100"}
