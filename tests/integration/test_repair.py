"""Repair of wheels whose libraries gcc made: stand-ins for ROCm, real loaders.

Faults of the field, by the tests that hold them: names that resolve by luck only (B05, a need by SONAME), a library
that nobody took along (B06, missing library), names opened at run time (B07, fat takes names opened), excludes without
a promise (B14, unused exclude, thin by contract), a tag older than the symbols (B15), stale hashes (B16), an executable
stack (B22), data of ROCm's libraries missing, empty or for other GPUs (B10, B11), two copies of ROCm (B13, dependant).
Layout after edits, version tables and stripping (B02, B03, B23) are in test_patch and test_rewrite, ZIP64 (B01) in
unit/test_wheel_archive, tool versions (B04) in the canary of doctor.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from installer.sources import WheelFile

from rocm_wheels.console import Console
from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import (
    BrokenArchive,
    BrokenWheel,
    DataMissing,
    LibraryMissing,
    NotElf,
    NothingToRepair,
    PlatformImpossible,
    SameResult,
    UnusedExclude,
)
from rocm_wheels.repair import RepairOptions, RepairPlan, apply_plan, check_results, plan_repair
from rocm_wheels.repair.manifest import read_repairs
from rocm_wheels.wheel import WheelArchive
from tests.wheel_fixtures import make_library, make_wheel

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)


class Machine:
    """A directory with a small ROCm and a wheel that was linked against it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rocm = root / "rocm" / "lib"
        make_library(self.rocm, "libamd_comgr.so.2")
        make_library(self.rocm, "libnuma.so.1")
        hip = make_library(
            self.rocm,
            "libamdhip64.so.5",
            needs=[self.rocm / "libnuma.so.1"],
            code='const char *opened(void) { return "libamd_comgr.so.2"; }',
        )
        blas = make_library(self.rocm, "librocblas.so.0", needs=[hip], options=[f"-Wl,-rpath,{self.rocm}"])
        library = self.rocm / "rocblas" / "2.47.0" / "library"
        library.mkdir(parents=True)
        for name in ("TensileLibrary.dat", "TensileLibrary_gfx1030.co", "TensileLibrary_gfx1100.co"):
            (library / name).write_text(name)
        own = make_library(root / "own", "libdemo_hip.so", needs=[blas, hip], options=["-Wl,-rpath,/build/host/lib"])
        extension = make_library(
            root / "own", "_C.so", needs=[own], soname=None, options=[f"-Wl,-rpath-link,{self.rocm}"]
        )
        self.files = {
            "demo/__init__.py": b"",
            "demo/_C.so": extension.read_bytes(),
            "demo/lib/libdemo_hip.so": own.read_bytes(),
        }

    def wheel(self, **files: bytes) -> Path:
        return make_wheel(self.root / "in", files={**self.files, **{f"demo/lib/{n}.so": d for n, d in files.items()}})

    def fat(self, wheel: Path | None = None) -> RepairPlan:
        options = RepairOptions(mode="fat", archs=("gfx1030",), lib_dirs=(self.rocm,))
        return plan_repair(wheel or self.wheel(), options)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def _elf(wheel: Path, member: str) -> ElfFile:
    with zipfile.ZipFile(wheel) as archive:
        return ElfFile.parse(archive.read(member), member)


def _mapped(folder: Path, library: str) -> set[str]:
    """What a process with an empty environment maps when it opens ``library`` first: paths below ``folder``."""
    code = "import ctypes,sys; ctypes.CDLL(sys.argv[1]); print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code, folder / library], env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    paths = {line.split()[-1] for line in done.stdout.splitlines() if ".so" in line}
    return {str(Path(p).relative_to(folder)) for p in paths if p.startswith(str(folder))}


def _strict(wheel: Path) -> None:
    with WheelFile.open(wheel) as source:
        source.validate_record(validate_contents=True)
    subprocess.run(["unzip", "-tq", wheel], check=True, capture_output=True)


def test_thin_leaves_rocm_outside_by_contract(machine: Machine, tmp_path: Path) -> None:
    plan = plan_repair(machine.wheel(), RepairOptions(mode="thin"))
    result = apply_plan(plan, tmp_path / "out", CONSOLE)
    _strict(result)
    library = _elf(result, "demo/lib/libdemo_hip.so")
    assert library.runpath is not None
    assert library.runpath.split(":")[0] == "$ORIGIN/../../_rocm_sdk_core/lib"
    assert "/build/host/lib" not in library.runpath
    assert _elf(result, "demo/_C.so").runpath == "$ORIGIN/lib"
    with zipfile.ZipFile(result) as archive:
        metadata = archive.read("demo-1.0.dist-info/METADATA").decode()
    assert "Requires-External: ROCm (>=5,<6)\nRequires-External: libamdhip64.so.5\n" in metadata
    assert result.name.startswith("demo-1.0-cp311-cp311-manylinux_")


def test_an_absolute_path_comes_last_and_only_when_asked_for(machine: Machine) -> None:
    plan = plan_repair(machine.wheel(), RepairOptions(mode="thin", absolute=("/opt/rocm/lib",)))
    edits = {e.member: e.edit for e in plan.elves if e.edit and e.edit.rpath}
    paths = {member: edit.rpath for member, edit in edits.items() if edit}
    assert str(paths["demo/lib/libdemo_hip.so"]).endswith(":/opt/rocm/lib")
    assert paths["demo/_C.so"] == "$ORIGIN/lib"


def test_fat_takes_needs_of_needs_names_opened_and_data_of_the_chosen_gpu(machine: Machine, tmp_path: Path) -> None:
    result = apply_plan(machine.fat(), tmp_path / "out", CONSOLE)
    _strict(result)
    with zipfile.ZipFile(result) as archive:
        names = set(archive.namelist())
        bom = json.loads(archive.read("demo-1.0.dist-info/sboms/rocm-wheels.cdx.json"))
    libraries = ("libamdhip64.so.5", "libamd_comgr.so.2", "libnuma.so.1", "librocblas.so.0")
    assert {f"demo/lib/{name}" for name in libraries} <= names
    assert {n for n in names if "Tensile" in n} == {
        "demo/lib/rocblas/2.47.0/library/TensileLibrary.dat",
        "demo/lib/rocblas/2.47.0/library/TensileLibrary_gfx1030.co",
    }
    assert len(bom["components"]) == len(libraries)
    assert _elf(result, "demo/lib/librocblas.so.0").rpath == "$ORIGIN"


def test_the_loaded_libraries_of_a_fat_wheel_are_those_of_the_plan(machine: Machine, tmp_path: Path) -> None:
    plan = machine.fat()
    result = apply_plan(plan, tmp_path / "out", CONSOLE)
    shutil.rmtree(machine.rocm)
    site = tmp_path / "site"
    zipfile.ZipFile(result).extractall(site)
    for elf in plan.elves:
        planned = {elf.member, *(n.where for n in elf.needs if n.provider in ("wheel", "graft"))}
        assert planned <= _mapped(site, elf.member)


@pytest.mark.parametrize("mode", ["thin", "fat", "retag", "rpath"])
def test_repair_of_its_own_result_changes_nothing(machine: Machine, tmp_path: Path, mode: str) -> None:
    options = RepairOptions(mode=mode, archs=("gfx1030",), lib_dirs=(machine.rocm,))  # type: ignore[arg-type]
    first = apply_plan(plan_repair(machine.wheel(), options), tmp_path / "1", CONSOLE)
    plan = plan_repair(first, options)
    assert plan.is_noop
    assert apply_plan(plan, tmp_path / "2", CONSOLE).read_bytes() == first.read_bytes()


def test_the_same_wheel_gives_the_same_bytes(machine: Machine, tmp_path: Path) -> None:
    wheel = machine.wheel()
    first, second = (apply_plan(machine.fat(wheel), tmp_path / name, CONSOLE) for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_unchanged_members_keep_their_compressed_bytes(machine: Machine, tmp_path: Path) -> None:
    wheel = machine.wheel()
    result = apply_plan(plan_repair(wheel, RepairOptions(mode="retag")), tmp_path / "out", CONSOLE)
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(result) as new:
        for name in machine.files:
            assert old.getinfo(name).compress_size == new.getinfo(name).compress_size
            assert old.read(name) == new.read(name)


def test_a_missing_library_is_an_error_that_names_who_needs_it(machine: Machine) -> None:
    (machine.rocm / "libnuma.so.1").unlink()
    with pytest.raises(LibraryMissing, match=r"libamdhip64.so.5 needs libnuma.so.1"):
        machine.fat()


def test_thin_does_not_promise_what_nobody_brings(machine: Machine, tmp_path: Path) -> None:
    odd = make_library(tmp_path / "odd", "libodd.so.1")
    user = make_library(tmp_path / "odd", "libuser.so", needs=[odd])
    wheel = machine.wheel(user=user.read_bytes())
    with pytest.raises(LibraryMissing, match=r"demo/lib/user.so needs libodd.so.1"):
        plan_repair(wheel, RepairOptions(mode="thin"))
    plan = plan_repair(wheel, RepairOptions(mode="thin", lib_dirs=(tmp_path / "odd",)))
    assert [graft.member for graft in plan.grafts] == ["demo/lib/libodd.so.1"]
    plan = plan_repair(wheel, RepairOptions(mode="thin", exclude=("libodd.so*",)))
    assert "libodd.so.1" in plan.requires_external


@pytest.mark.parametrize("inside", [True, False])
def test_a_need_by_the_path_of_the_build_host_becomes_one_by_name(tmp_path: Path, *, inside: bool) -> None:
    """Linked by path to a library without SONAME: the loader would look for that very path."""
    other = make_library(tmp_path / "host", "libother.so", soname=None)
    user = make_library(tmp_path / "host", "libuser.so", needs=[other])
    files = {"demo/libuser.so": user.read_bytes()} | ({"demo/libother.so": other.read_bytes()} if inside else {})
    wheel = make_wheel(tmp_path, files=files)
    plan = plan_repair(wheel, RepairOptions(mode="fat", lib_dirs=(tmp_path / "host",)))
    result = apply_plan(plan, tmp_path / "out", CONSOLE)
    shutil.rmtree(tmp_path / "host")
    zipfile.ZipFile(result).extractall(tmp_path / "site")
    (found,) = (tmp_path / "site").rglob("libother.so")
    assert str(found.relative_to(tmp_path / "site")) in _mapped(tmp_path / "site", "demo/libuser.so")


def test_an_exclude_that_matches_nothing_is_an_error(machine: Machine) -> None:
    with pytest.raises(UnusedExclude, match=r"libamdhip64.so.6"):
        plan_repair(machine.wheel(), RepairOptions(mode="thin", exclude=("libamdhip64.so.6",)))


def test_a_need_by_soname_that_is_no_file_name_is_made_one(tmp_path: Path) -> None:
    """Works while the other library is loaded first, fails cold: pytorch#189906."""
    b = make_library(tmp_path, "libb.so", soname="libb.so.1")
    a = make_library(tmp_path, "liba.so", needs=[b])
    wheel = make_wheel(tmp_path / "in", files={"demo/lib/liba.so": a.read_bytes(), "demo/lib/libb.so": b.read_bytes()})
    result = apply_plan(plan_repair(wheel, RepairOptions(mode="thin")), tmp_path / "out", CONSOLE)
    assert _elf(result, "demo/lib/liba.so").needed[0] == "libb.so"
    zipfile.ZipFile(result).extractall(tmp_path / "site")
    assert _mapped(tmp_path / "site", "demo/lib/liba.so") == {"demo/lib/liba.so", "demo/lib/libb.so"}


def test_a_tag_that_the_symbols_forbid_is_refused_with_file_and_symbol(machine: Machine, tmp_path: Path) -> None:
    code = '#include <stdio.h>\n#include <pthread.h>\nint j(void) { return pthread_join(0, 0) + puts("x"); }'
    library = make_library(tmp_path, "libnew.so", code=code)
    needs = ElfFile.parse(library.read_bytes(), "new").verneed["libc.so.6"]
    if "GLIBC_2.34" not in needs:
        pytest.skip("this machine's C library is older than the fault")
    with pytest.raises(PlatformImpossible, match=r"demo/lib/new.so needs GLIBC_2.34") as caught:
        plan_repair(machine.wheel(new=library.read_bytes()), RepairOptions(mode="thin", plat="manylinux2014_x86_64"))
    assert "CentOS 7" in caught.value.remedy


def test_an_executable_stack_is_cleared_unless_it_is_wanted(machine: Machine, tmp_path: Path) -> None:
    stack = make_library(tmp_path, "stack.so", options=["-Wl,-z,execstack"]).read_bytes()
    wheel = machine.wheel(stack=stack)
    result = apply_plan(plan_repair(wheel, RepairOptions(mode="thin")), tmp_path / "out", CONSOLE)
    assert not _elf(result, "demo/lib/stack.so").stack_executable
    kept = plan_repair(wheel, RepairOptions(mode="thin", keep_stack=True))
    assert next(e for e in kept.elves if e.member == "demo/lib/stack.so").edit is None


def test_a_library_that_is_not_what_record_says_is_not_blessed_by_an_edit(machine: Machine, tmp_path: Path) -> None:
    record = "".join(f"{name},sha256=AAAA,1\n" for name in machine.files) + "demo-1.0.dist-info/RECORD,,\n"
    wheel = make_wheel(tmp_path / "in", files=machine.files, record=record.encode())
    with pytest.raises(BrokenWheel, match=r"is not the file that RECORD vouches for"):
        apply_plan(plan_repair(wheel, RepairOptions(mode="thin")), tmp_path / "out", CONSOLE)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_pure_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingToRepair):
        plan_repair(make_wheel(tmp_path, tag="py3-none-any"), RepairOptions())


@pytest.mark.parametrize(("place", "value", "word"), [(4, 1, "32-bit"), (5, 2, "big-endian"), (18, 183, "machine 183")])
def test_an_elf_file_of_another_kind_is_named(machine: Machine, place: int, value: int, word: str) -> None:
    data = bytearray(machine.files["demo/_C.so"])
    data[place] = value
    with pytest.raises(NotElf, match=rf"demo/lib/odd.so .*{word}"):
        plan_repair(machine.wheel(odd=bytes(data)), RepairOptions())


def test_text_behind_the_name_of_a_library_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    wheel = machine.wheel(script=b"INPUT(libdemo_hip.so) /* a linker script, longer than an ELF header is */      ")
    result = apply_plan(plan_repair(wheel, RepairOptions()), tmp_path / "out", CONSOLE)
    with zipfile.ZipFile(result) as archive:
        assert archive.read("demo/lib/script.so").startswith(b"INPUT")


def test_a_dependant_finds_torch_beside_itself(tmp_path: Path) -> None:
    torch = make_library(tmp_path, "libtorch_hip.so")
    extension = make_library(tmp_path, "_ext.so", soname=None, needs=[torch])
    wheel = make_wheel(tmp_path / "in", files={"demo/_ext.so": extension.read_bytes()}, requires=["torch==2.6.0"])
    result = apply_plan(plan_repair(wheel, RepairOptions(mode="fat")), tmp_path / "out", CONSOLE)
    assert _elf(result, "demo/_ext.so").rpath == "$ORIGIN/../torch/lib"


def test_a_full_disk_leaves_the_destination_as_it_was(machine: Machine, tmp_path: Path) -> None:
    plan = machine.fat()
    dest = tmp_path / "out"
    apply_plan(plan, dest, CONSOLE)
    before = {p.name: p.read_bytes() for p in dest.iterdir()}
    code = (
        "import resource,sys;from pathlib import Path;from tests.integration.test_repair import *;"
        "import signal;signal.signal(signal.SIGXFSZ,signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE,(3000,3000));"
        "apply_plan(plan_repair(Path(sys.argv[1]),RepairOptions(mode='retag',plat='linux_x86_64')),Path(sys.argv[2]),CONSOLE)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, dest / plan.name, dest], capture_output=True, text=True, env={**os.environ}
    )
    assert "NoSpace" in done.stderr
    assert {p.name: p.read_bytes() for p in dest.iterdir()} == before


def test_a_tag_that_promises_nothing_needs_no_reading(machine: Machine, tmp_path: Path) -> None:
    wheel = machine.wheel()
    with zipfile.ZipFile(wheel) as archive:
        place = archive.getinfo("demo/lib/libdemo_hip.so").header_offset + 1000
    data = bytearray(wheel.read_bytes())
    data[place] ^= 0xFF
    wheel.write_bytes(data)
    plan = plan_repair(wheel, RepairOptions(mode="retag", plat="linux_x86_64"))
    result = apply_plan(replace(plan, retags=True), tmp_path / "out", CONSOLE)
    assert result.name.endswith("-linux_x86_64.whl")
    empty = make_wheel(tmp_path / "pure", files={"demo/__init__.py": b"x = 1" * 100})
    with pytest.raises(NothingToRepair):
        plan_repair(empty, RepairOptions(mode="retag", plat="linux_x86_64"))


def test_data_that_a_grafted_library_needs_must_be_there_and_not_empty(machine: Machine) -> None:
    folder = machine.rocm / "rocblas" / "2.47.0" / "library"
    (folder / "TensileLibrary_gfx1030.co").write_bytes(b"")
    with pytest.raises(DataMissing, match=r"TensileLibrary_gfx1030.co of librocblas.so.0 is empty"):
        machine.fat()
    shutil.rmtree(folder)
    with pytest.raises(DataMissing, match=r"librocblas.so.0 reads data at run time"):
        machine.fat()


def test_data_in_a_directory_per_target_is_taken_for_the_chosen_gpu_only(machine: Machine) -> None:
    folder = machine.rocm / "rocblas" / "library"
    for target in ("gfx1030", "gfx90a"):
        (folder / target).mkdir(parents=True)
        (folder / target / "Kernels.co").write_text(target)
    taken = {g.member for g in machine.fat().data if "rocblas/library" in g.member}
    assert taken == {"demo/lib/rocblas/library/gfx1030/Kernels.co"}


def test_a_target_without_data_is_noted(machine: Machine) -> None:
    options = RepairOptions(mode="fat", archs=("gfx1030", "gfx906"), lib_dirs=(machine.rocm,))
    assert "librocblas.so.0 has no data for gfx906 on this machine" in plan_repair(machine.wheel(), options).notes


def test_fat_leaves_rocm_to_the_torch_that_is_required(machine: Machine) -> None:
    wheel = make_wheel(machine.root / "in2", files=machine.files, requires=["torch==2.6.0"])
    plan = plan_repair(wheel, RepairOptions(mode="fat", archs=("gfx1030",), lib_dirs=(machine.rocm,)))
    assert plan.grafts == ()
    assert {str(contract) for contract, _ in plan.contracts} == {"torch ==2.6.0"}
    assert any("two copies in one process" in note for note in plan.notes)


def test_the_record_of_repairs_says_what_was_done_and_who_brings_the_rest(machine: Machine, tmp_path: Path) -> None:
    thin = apply_plan(plan_repair(machine.wheel(), RepairOptions()), tmp_path / "1", CONSOLE)
    fat = apply_plan(machine.fat(thin), tmp_path / "2", CONSOLE)
    with WheelArchive.open(fat) as archive:
        first, second = read_repairs(archive)
    assert (first["mode"], second["mode"]) == ("thin", "fat")
    (provider,) = first["providers"]
    assert (provider["provider"], provider["versions"]) == ("system ROCm", ">=5,<6")
    assert {g["member"]: g["sha256"] for g in second["grafts"]}["demo/lib/librocblas.so.0"].startswith("sha256=")
    assert str(machine.root) not in json.dumps([first, second])
    _strict(fat)


def test_a_chosen_distribution_is_written_to_metadata_once(machine: Machine, tmp_path: Path) -> None:
    options = RepairOptions(requires=("rocm-sdk-core==5.7.*",))
    result = apply_plan(plan_repair(machine.wheel(), options), tmp_path / "out", CONSOLE)
    with WheelArchive.open(result) as archive:
        assert archive.metadata.count("Requires-Dist: rocm-sdk-core==5.7.*") == 1
        assert "Requires-External: libamdhip64" not in archive.metadata
    assert plan_repair(result, options).is_noop
    assert plan_repair(result, RepairOptions()).is_noop


def test_two_wheels_that_would_become_one_file_are_refused(machine: Machine) -> None:
    plan = plan_repair(machine.wheel(), RepairOptions(mode="retag"))
    with pytest.raises(SameResult, match="would both become"):
        check_results([plan, plan])


def test_a_damaged_library_leaves_no_partial_output(machine: Machine, tmp_path: Path) -> None:
    wheel = machine.wheel()
    with zipfile.ZipFile(wheel) as archive:
        place = archive.getinfo("demo/lib/libdemo_hip.so").header_offset + 500
    data = bytearray(wheel.read_bytes())
    data[place] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(BrokenArchive, match=r"libdemo_hip.so at 0x"):
        apply_plan(plan_repair(wheel, RepairOptions()), tmp_path / "out", CONSOLE)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_order_of_hashes_does_not_show_in_the_result(machine: Machine, tmp_path: Path, seed: str) -> None:
    wheel = machine.wheel()
    code = (
        "import sys;from pathlib import Path;from tests.integration.test_repair import *;"
        "o=RepairOptions(mode='fat',archs=('gfx1030',),lib_dirs=(Path(sys.argv[3]),));"
        "apply_plan(plan_repair(Path(sys.argv[1]),o),Path(sys.argv[2]),CONSOLE)"
    )
    words = [sys.executable, "-c", code, str(wheel), str(tmp_path / seed), str(machine.rocm)]
    subprocess.run(words, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    expected = apply_plan(machine.fat(wheel), tmp_path / "here", CONSOLE)
    assert (tmp_path / seed / expected.name).read_bytes() == expected.read_bytes()
