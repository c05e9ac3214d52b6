"""Editing in place: the result must say what patchelf's says, and the loader must take it."""

import itertools
import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.anatomy import anatomy
from rocm_wheels.elf.edit import Edit, apply_edit, find_patchelf, run_patchelf
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.elf.patch import patches
from rocm_wheels.errors import EditFailed
from tests.elf_fixtures import bundle, make_library

pytestmark = pytest.mark.integration
LONG = "$ORIGIN:" + ":".join(f"$ORIGIN/../a/rather/long/path/{n}" for n in range(9))
LAYOUTS = {
    "plain": ["-Wl,-z,separate-code"],
    "one load for all": ["-Wl,-z,noseparate-code"],
    "full dynamic section": ["-Wl,--spare-dynamic-tags=0"],
    "relro and now": ["-Wl,-z,relro,-z,now"],
    "big pages": ["-Wl,-z,max-page-size=0x200000", "-Wl,-z,common-page-size=0x200000"],
    "old hash": ["-Wl,--hash-style=sysv"],
    "stripped": ["-s"],
    "executable stack": ["-Wl,-z,execstack"],
}
EDITS = {
    "shorter path": Edit(rpath="$ORIGIN"),
    "longer path": Edit(rpath=LONG),
    "as RPATH": Edit(rpath=LONG, force_rpath=True),
    "no path": Edit(rpath=""),
    "names": Edit(soname="libx-longer-name.so.99", replace_needed=(("libbase.so.1", "libbase-renamed.so.1"),)),
    "all": Edit(
        rpath="$ORIGIN", force_rpath=True, soname="x", replace_needed=(("libbase.so.1", "b.so"),), clear_stack=True
    ),
}
PATHS = {"no": None, "short": "/b", "long": f"/build/host/lib:{LONG}"}
CODE = """
#include <stdio.h>
int libbase_so_1(void);
static __thread int local = 4;
static int zeros[100000];
static const char *table[] = {"a", "b"};
__attribute__((constructor)) static void begin(void) { zeros[99999] = 1; }
int answer(void) { return libbase_so_1() + local + zeros[99999] + table[1][0] + (stdout != NULL); }
"""
EXPECTED = 1 + 4 + 1 + ord("b") + 1


def _library(folder: Path, path: str | None, options: list[str]) -> Path:
    base = make_library(folder, "libbase.so.1", versions={"BASE_1": "libbase_so_1"})
    return make_library(
        folder,
        "libx.so",
        code=CODE,
        needs=[base],
        rpath=path,
        bundles=[bundle(["gfx1030"])] * 3,
        options=options,
    )


def _says(path: Path) -> tuple[object, ...]:
    """All that loaders read of a file, and its device code."""
    elf = ElfFile.parse(path.read_bytes(), path.name)
    assert check_layout(elf) == ()
    code = bytes(elf.section_bytes(".hip_fatbin"))
    return (
        sorted(elf.needed),
        elf.soname,
        elf.rpath,
        elf.runpath,
        elf.verneed,
        elf.verdef,
        elf.stack_executable,
        [s.name for s in sorted(elf.sections, key=lambda s: s.name)],
        code,
    )


def _answers(path: Path, edit: Edit) -> None:
    """The loader opens the file at its new names, and its code, data, BSS, TLS and constructors work."""
    folder = path.parent
    for old, new in edit.replace_needed:
        subprocess.run(["gcc", "-shared", "-o", folder / new, folder / old, f"-Wl,-soname,{new}"], check=True)
        shutil.copyfile(folder / old, folder / new)
        apply_edit(folder / new, Edit(soname=new))
    code = "import ctypes,sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    environment = {"LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code, path], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(EXPECTED), done.stderr


def _by_patchelf(file: Path, edit: Edit) -> Path | None:
    authority = Path(shutil.copyfile(file, file.with_name("by-patchelf.so")))
    try:
        run_patchelf(authority, edit, find_patchelf())
    except EditFailed as error:
        assert "extends past end of section" in error.message  # 0.19.3 has no answer to a full dynamic section
        return None
    return authority


@pytest.mark.parametrize("path", sorted(PATHS))
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_edit_says_what_patchelf_says_and_loads(tmp_path: Path, layout: str, path: str) -> None:
    made = _library(tmp_path / "made", PATHS[path], LAYOUTS[layout])
    for name, edit in EDITS.items():
        folder = Path(shutil.copytree(made.parent, tmp_path / name.replace(" ", "-")))
        file = folder / made.name
        authority = _by_patchelf(file, edit)
        apply_edit(file, edit)
        assert authority is None or _says(file) == _says(authority), name
        assert authority or layout == "full dynamic section"
        if layout != "executable stack" or edit.clear_stack:  # glibc 2.41 refuses the others
            _answers(file, edit)


def test_edits_on_edits_load_and_patchelf_still_takes_the_file(tmp_path: Path) -> None:
    file = _library(tmp_path, PATHS["no"], LAYOUTS["full dynamic section"])
    for length in (1, 5, 2, 9):
        apply_edit(file, Edit(rpath=f"{LONG}:$ORIGIN/" + "x" * 100 * length, force_rpath=length == 5))
        _answers(file, Edit())
    run_patchelf(file, Edit(rpath=LONG + "/and/by/patchelf" * 20), find_patchelf())
    _answers(file, Edit())
    apply_edit(file, Edit(rpath="$ORIGIN/back"))
    assert ElfFile.parse(file.read_bytes(), "x").runpath == "$ORIGIN/back"
    _answers(file, Edit())


def test_an_edit_made_again_changes_nothing(tmp_path: Path) -> None:
    for path, edit in itertools.product(PATHS, EDITS):
        file = _library(tmp_path / path / edit.replace(" ", "-"), PATHS[path], [])
        apply_edit(file, EDITS[edit])
        again = patches(anatomy(ElfFile.parse(file.read_bytes(), "x")), replace(EDITS[edit], replace_needed=()), "x")
        assert not again.tail
        assert not again.changes


@pytest.mark.parametrize("kind", ["-pie", "-no-pie", "-Wl,--build-id=none"])
def test_a_program_keeps_its_header_table_in_place_and_runs(tmp_path: Path, kind: str) -> None:
    base = make_library(tmp_path, "libbase.so.1")
    source = tmp_path / "main.c"
    source.write_text("int libbase_so_1(void); int main(void) { return 41 + libbase_so_1(); }")
    program = tmp_path / "program"
    subprocess.run(["gcc", kind, "-o", program, source, base, "-Wl,-rpath,/x"], check=True)
    for path in ("$ORIGIN", f"{LONG}:$ORIGIN"):
        apply_edit(program, Edit(rpath=path))
        elf = ElfFile.parse(program.read_bytes(), "program")
        assert check_layout(elf) == ()
        assert elf.program_header_table[0] == 64
        assert subprocess.run([program], env={}, check=False).returncode == 42


def test_a_file_without_a_stack_header_gets_one(tmp_path: Path) -> None:
    file = _library(tmp_path, None, [])
    data = bytearray(file.read_bytes())
    elf = ElfFile.parse(bytes(data), "x")
    index = next(i for i, s in enumerate(elf.segments) if s.type == 0x6474E551)
    struct.pack_into("<I", data, elf.program_header_table[0] + 56 * index, 0)  # PT_NULL
    file.write_bytes(data)
    assert ElfFile.parse(bytes(data), "x").stack_executable
    apply_edit(file, Edit(clear_stack=True))
    assert not ElfFile.parse(file.read_bytes(), "x").stack_executable
    _answers(file, Edit())


def test_no_path_of_the_build_host_stays_behind(tmp_path: Path) -> None:
    for edit in (Edit(rpath="$ORIGIN"), Edit(rpath=""), Edit(rpath=LONG * 3)):
        file = _library(tmp_path, PATHS["long"], [])
        apply_edit(file, edit)
        assert b"/build/host" not in file.read_bytes()


def test_a_path_that_others_point_into_is_not_overwritten(tmp_path: Path) -> None:
    """The linker lets the needed name share the end of the path."""
    make_library(tmp_path, "libbase.so.1", versions={"BASE_1": "libbase_so_1"})
    file = make_library(
        tmp_path, "libx.so", code=CODE, needs=[tmp_path / "libbase.so.1"], rpath="/build/libbase.so.1", options=["-O2"]
    )
    elf = ElfFile.parse(file.read_bytes(), "x")
    needed, path = (next(value for tag, value in elf.dynamic if tag == wanted) for wanted in (1, 29))
    assert path < needed < path + len("/build/libbase.so.1")
    assert anatomy(elf).rooms == ()
    apply_edit(file, Edit(rpath="$ORIGIN"))
    assert "libbase.so.1" in ElfFile.parse(file.read_bytes(), "x").needed
    _answers(file, Edit())
