"""Fat wheels to split: frameworks and a small ROCm, made by gcc, laid as repair lays them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.wheel_fixtures import make_library, make_wheel

ARCHS = ("gfx1030", "gfx1100")
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}-cp{sys.version_info[0]}{sys.version_info[1]}-linux_x86_64"
_HERE = ("-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags")

# Looks for its data as rocBLAS does: below the directory that it was loaded from.
_BLAS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int has_data(const char *arch) {
  Dl_info me;
  char path[4096];
  dladdr((void *)has_data, &me);
  snprintf(path, sizeof path, "%.*s/rocblas/2.47.0/library/TensileLibrary_%s.co",
           (int)(strrchr(me.dli_fname, '/') - me.dli_fname), me.dli_fname, arch);
  return access(path, R_OK) == 0;
}
"""
# HIP opens comgr by name when it first compiles.
_HIP = """
#include <dlfcn.h>
int opens_comgr(void) { return dlopen("libamd_comgr.so.2", RTLD_NOW) != 0; }
"""

_INIT = b"""import ctypes, pathlib
C = ctypes.CDLL(str(pathlib.Path(__file__).with_name("_C.so")))
"""


class Rocm:
    """A directory with a ROCm of five libraries and rocBLAS's data."""

    def __init__(self, folder: Path, *, salt: str = "") -> None:
        self.folder = folder
        code = f'const char *salt(void) {{ return "{salt}"; }}' if salt else ""
        make_library(folder, "libnuma.so.1", options=_HERE)
        make_library(folder, "libamd_comgr.so.2", options=_HERE)
        numa, hip = folder / "libnuma.so.1", folder / "libamdhip64.so.5"
        make_library(folder, hip.name, needs=[numa], code=_HIP + code, options=_HERE)
        make_library(folder, "librocblas.so.0", needs=[hip], code=_BLAS, options=_HERE)
        make_library(folder, "librocsolver.so.0", needs=[folder / "librocblas.so.0", hip], options=_HERE)
        library = folder / "rocblas" / "2.47.0" / "library"
        library.mkdir(parents=True)
        for name in ("TensileLibrary.dat", *(f"TensileLibrary_{arch}.co" for arch in ARCHS)):
            (library / name).write_text(name)

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


def make_framework(
    folder: Path,
    rocm: Rocm,
    name: str = "demo",
    *,
    needs: Sequence[str] = ("libamdhip64.so.5", "librocblas.so.0"),
    fat: bool = True,
    version: str = "1.0+rocm5.7",
    tag: str = TAG,
    requires: Sequence[str] = (),
) -> Path:
    """A framework's wheel over ``rocm``; ``fat`` has all of it inside, as ``repair --mode fat`` leaves it."""
    own = folder / f"{name}-own"
    library = make_library(
        own,
        f"lib{name}_hip.so",
        needs=[rocm.folder / n for n in needs],
        options=[*_HERE, f"-Wl,-rpath-link,{rocm.folder}"],
    )
    extension = make_library(
        own,
        "_C.so",
        soname=None,
        needs=[library],
        options=["-Wl,-rpath,$ORIGIN:$ORIGIN/lib", "-Wl,--disable-new-dtags", f"-Wl,-rpath-link,{rocm.folder}"],
    )
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": _INIT,
        f"{name}/_C.so": extension.read_bytes(),
        f"{name}/lib/lib{name}_hip.so": library.read_bytes(),
    }
    if fat:
        for file in rocm.files:
            files[f"{name}/lib/{file.relative_to(rocm.folder).as_posix()}"] = file.read_bytes()
        files[f"{info}/licenses/rocm/librocblas0.txt"] = b"the licence of rocBLAS\n"
        files[f"{info}/licenses/LICENSE"] = b"the licence of the framework\n"
        files[f"{info}/sboms/rocm-wheels.cdx.json"] = _sbom(f"{name}/lib/librocblas.so.0")
    return make_wheel(folder / "in", name, version, tag, files, requires=requires)


def _sbom(member: str) -> bytes:
    file = {"name": "rocm-wheels:file", "value": member}
    component = {"type": "library", "name": "librocblas0", "version": "5.5.1-7", "properties": [file]}
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [component]}).encode()


def cold_load(library: Path, **environment: str) -> set[str]:
    """Files that a process of its own maps when it opens ``library`` first, with an empty environment."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(open('/proc/self/maps').read())"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, library], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {line.split()[-1] for line in done.stdout.splitlines() if ".so" in line}
