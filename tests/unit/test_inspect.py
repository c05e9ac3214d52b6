from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rocm_wheels.errors import UsageError
from rocm_wheels.inspect import answer, inspect_wheel
from rocm_wheels.inspect.data import DATA, DEVICE
from rocm_wheels.inspect.gpus import wanted_gpus
from rocm_wheels.inspect.table import tables
from tests.elf_fixtures import bundle, compressed, make_library
from tests.gpu_fixtures import make_machine
from tests.inspect_wheels import BLAS_DATA, demo_wheel, device_library, stub


def test_bytes_add_up_and_are_told_apart_by_part_and_gpu(tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030", "gfx1100"], ["gfx1030"])
    found = inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}, data={BLAS_DATA.format("gfx1030"): b"x" * 700}))
    assert sum(p.size for p in found.parts.values()) == found.total.size
    assert sum(p.packed for p in found.parts.values()) == found.total.packed
    code, data = found.by_gpu()["gfx1030"]
    assert (code.objects, data.size) == (2, 700)
    assert code.stored == 2 * found.by_gpu()["gfx1100"][0].stored
    assert found.parts[DEVICE].size == sum(c.stored for c, _ in found.by_gpu().values())
    assert found.parts[DATA].size == 700


def test_packed_bytes_are_measured_not_shared_out_by_size(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(3 << 20)
    code = bundle(["gfx1030"], payload=noise)
    path = make_library(tmp_path, "libk.so", bundles=[code], code=f"const char zeros[{12 << 20}] = {{1}};")
    (library,) = inspect_wheel(demo_wheel(tmp_path, {"libk.so": path.read_bytes()})).libraries
    assert library.code[0].packed == pytest.approx(len(noise), rel=0.05)  # noise does not deflate, zeros do
    assert library.host.packed < library.host.size / 50


def test_compressed_code_counts_by_what_is_stored(tmp_path: Path) -> None:
    plain = bundle(["gfx90a:xnack-", "gfx1100"], payload=b"\x7fELF" + bytes(60000))
    path = make_library(tmp_path, "libk.so", bundles=[compressed(plain, 3)])
    (library,) = inspect_wheel(demo_wheel(tmp_path, {"libk.so": path.read_bytes()})).libraries
    assert {c.arch for c in library.code} == {"gfx90a:xnack-", "gfx1100"}
    assert all(c.inflated == 60004 and c.stored < 1000 for c in library.code)


def test_the_answer_is_over_all_bundles_and_libraries(tmp_path: Path) -> None:
    full = device_library(tmp_path, "libfull.so", ["gfx1030", "gfx1100"])
    part = device_library(tmp_path, "libpart.so", ["gfx1030", "gfx1100"], ["gfx1030"])
    found = inspect_wheel(demo_wheel(tmp_path, {"libfull.so": full, "libpart.so": part}))
    assert answer(found, "gfx1030").verdict == "native"
    no = answer(found, "gfx1100")
    assert no.verdict == "none"
    assert no.lacking == (
        ("demo/lib/libpart.so", "1 of 2 bundles: no code for gfx1100 nor for a target of its family"),
    )


@pytest.mark.parametrize(
    ("first", "second", "verdict", "variable"),
    [
        (["gfx1030"], ["gfx1030"], "override", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        (["gfx1032"], ["gfx1030"], "none", ""),  # the override would take the code of the first away
        (["gfx1032", "gfx1030"], ["gfx1030"], "override", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        (["gfx1032"], ["gfx10-3-generic"], "generic", ""),
        (["gfx1032"], ["gfx1032"], "native", ""),
    ],
)
def test_one_override_must_do_for_all_libraries(
    tmp_path: Path, first: list[str], second: list[str], verdict: str, variable: str
) -> None:
    libraries = {n: device_library(tmp_path, n, a) for n, a in (("liba.so", first), ("libb.so", second))}
    said = answer(inspect_wheel(demo_wheel(tmp_path, libraries)), "gfx1032")
    assert (said.verdict, said.variable) == (verdict, variable)


def test_libraries_that_need_different_settings_do_not_run_together(tmp_path: Path) -> None:
    libraries = {n: device_library(tmp_path, n, [a]) for n, a in (("a.so", "gfx90a:xnack-"), ("b.so", "gfx90a:xnack+"))}
    said = answer(inspect_wheel(demo_wheel(tmp_path, libraries)), "gfx90a")
    assert said.verdict == "none"
    assert "HSA_XNACK=1" in said.why


def test_code_that_says_nothing_of_xnack_runs_with_either_setting(tmp_path: Path) -> None:
    libraries = {n: device_library(tmp_path, n, [a]) for n, a in (("a.so", "gfx90a"), ("b.so", "gfx90a:xnack+"))}
    said = answer(inspect_wheel(demo_wheel(tmp_path, libraries)), "gfx90a")
    assert (said.gfx, said.verdict, said.variable) == ("gfx90a", "native", "HSA_XNACK=1")


def test_a_wheel_of_data_files_alone_serves_their_targets(tmp_path: Path) -> None:
    data = {"demo/lib/hipblaslt/library/TensileLibrary_gfx1100.co": b"data", "demo/kernels/add_gfx1101.hsaco": b"code"}
    found = inspect_wheel(demo_wheel(tmp_path, {}, data=data))
    assert [(gfx, answer(found, gfx).verdict) for gfx in ("gfx1100", "gfx1030")] == [
        ("gfx1100", "native"),
        ("gfx1030", "none"),
    ]
    assert {d.component for d in found.data} == {"hipBLASLt", "code objects"}


def test_device_code_that_was_split_off_is_decided_outside(tmp_path: Path) -> None:
    marker = '__asm__(".section .rocm_kpack_ref,\\"a\\",@progbits\\n.byte 1\\n.previous");int f(void){return 1;}'
    library = make_library(tmp_path, "libsplit.so", code=marker).read_bytes()
    full = device_library(tmp_path, "libfull.so", ["gfx1030"])
    found = inspect_wheel(demo_wheel(tmp_path, {"libsplit.so": library, "libfull.so": full}))
    said = answer(found, "gfx1030")
    assert (said.verdict, ".kpack" in said.why) == ("outside", True)
    assert answer(found, "gfx1100").verdict == "none"


def test_notes_of_an_override_are_about_the_target_that_it_pretends_to(tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030"])
    data = {"demo/lib/hipblaslt/library/TensileLibrary_gfx1030.co": b"data"}
    assert answer(inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}, data=data)), "gfx1032").notes == ()


def test_code_without_rocblas_data_does_not_run(tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030", "gfx1100"])
    data = {BLAS_DATA.format("gfx1030"): b"data", "demo/lib/hipblaslt/library/TensileLibrary_gfx1100.co": b"data"}
    found = inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}, data=data))
    yes, no = answer(found, "gfx1030"), answer(found, "gfx1100")
    assert (yes.verdict, no.verdict) == ("native", "none")
    assert "rocBLAS has data for gfx1030" in no.lacking[0][1]
    assert any("hipBLASLt has no files for gfx1030" in note for note in yes.notes)


def test_an_empty_data_file_does_not_serve(tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030"])
    found = inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}, data={BLAS_DATA.format("gfx1030"): b""}))
    assert answer(found, "gfx1030").lacking == ((BLAS_DATA.format("gfx1030"), "the data file is empty"),)


def test_libraries_per_rocm_release_are_answered_one_by_one(tmp_path: Path) -> None:
    libraries = {
        "libx_rocm64.so": device_library(tmp_path, "libx_rocm64.so", ["gfx1030"]),
        "libx_rocm714.so": device_library(tmp_path, "libx_rocm714.so", ["gfx1030", "gfx1032"]),
    }
    said = answer(inspect_wheel(demo_wheel(tmp_path, libraries)), "gfx1032")
    assert said.verdict == "native"
    assert [(label, each.verdict) for label, each in said.variants] == [("rocm64", "override"), ("rocm714", "native")]
    assert said.why.endswith("by the library for rocm714")


def test_a_thin_wheel_is_decided_by_the_rocm_outside(tmp_path: Path) -> None:
    hip = stub(tmp_path / "outside", "libamdhip64.so.6")
    library = make_library(tmp_path, "libthin.so", needs=[hip]).read_bytes()
    said = answer(inspect_wheel(demo_wheel(tmp_path, {"libthin.so": library})), "gfx1030")
    assert (said.verdict, "libamdhip64.so.6" in said.why) == ("outside", True)


def test_a_wheel_without_gpu_code_or_rocm_says_so(tmp_path: Path) -> None:
    library = make_library(tmp_path, "libcpu.so").read_bytes()
    assert answer(inspect_wheel(demo_wheel(tmp_path, {"libcpu.so": library})), "gfx1030").why.endswith("CPU only")
    assert answer(inspect_wheel(demo_wheel(tmp_path / "pure", {})), "gfx1030").verdict == "empty"


def test_damaged_device_code_is_no_code_and_hides_nothing_else(tmp_path: Path) -> None:
    good = device_library(tmp_path, "libgood.so", ["gfx1030"])
    bad = device_library(tmp_path, "libbad.so", ["gfx1030"]).replace(b"__CLANG_OFFLOAD_BUNDLE__", b"x" * 24)
    found = inspect_wheel(demo_wheel(tmp_path, {"libgood.so": good, "libbad.so": bad, "libcut.so": good[:200]}))
    assert [lib.name for lib in found.device_libraries] == ["demo/lib/libbad.so", "demo/lib/libgood.so"]
    assert [name for name, _ in found.unreadable] == ["demo/lib/libcut.so"]
    assert answer(found, "gfx1030").verdict == "none"


def test_needs_say_who_gives_them(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    names = ("libamdhip64.so.6", "libtorch.so", "libown.so", "liblost.so", "libnobody.so.1")
    stubs = [stub(outside, name) for name in names]
    user = make_library(tmp_path, "libuser.so", needs=stubs, rpath="$ORIGIN/sub:/opt/rocm-6.2.0/lib").read_bytes()
    libraries = {"libuser.so": user, "sub/libown.so": stubs[2].read_bytes(), "far/liblost.so": stubs[3].read_bytes()}
    found = inspect_wheel(demo_wheel(tmp_path, libraries, requires=["torch>=2"]))
    given = {need.library: (need.provider, need.where) for need in found.needs}
    assert given["libown.so"] == ("wheel", "demo/lib/sub/libown.so")
    assert given["liblost.so"] == ("unreachable", "demo/lib/far/liblost.so")
    assert given["libtorch.so"] == ("distribution", "torch")
    assert given["libamdhip64.so.6"] == ("rpath", "/opt/rocm-6.2.0/lib")
    assert given["libnobody.so.1"] == ("unknown", "")
    assert given["libc.so.6"][0] == "system"


@pytest.mark.parametrize(
    ("library", "requires", "given"),
    [
        ("libamdhip64.so.7", ["jax-rocm7-pjrt==0.10.2"], ("distribution", "jax-rocm7-pjrt")),
        ("libamdhip64.so.7", ["rocm-sdk-core", "rocm[libraries]"], ("distribution", "rocm, rocm-sdk-core")),
        ("libamdhip64.so.7", ["torch"], ("distribution", "torch, if that is a ROCm build which brings its own")),
        ("libcublas.so.12", ["nvidia-cublas-cu12", "nvidia-nccl-cu12"], ("distribution", "nvidia-*")),
        ("libmkl_rt.so.2", ["mkl"], ("distribution", "mkl")),
        ("libother.so.1", ["mkl", "nvidia-cublas-cu12", "rocm-sdk-core"], ("unknown", "")),
        ("libcuda.so.1", [], ("system", "the NVIDIA driver")),
    ],
)
def test_a_declared_distribution_gives_what_it_is_known_to_bring(
    tmp_path: Path, library: str, requires: list[str], given: tuple[str, str]
) -> None:
    user = make_library(tmp_path, "libuser.so", needs=[stub(tmp_path / "outside", library)]).read_bytes()
    found = inspect_wheel(demo_wheel(tmp_path, {"libuser.so": user}, requires=requires))
    assert given in [(need.provider, need.where) for need in found.needs if need.library == library]


def test_the_rocm_release_comes_from_every_sign_of_it(tmp_path: Path) -> None:
    hip = stub(tmp_path / "outside", "libamdhip64.so.6")
    comment = '__asm__(".ident \\"AMD clang version 18.0.0git (https://github.com/x roc-6.3.3 25012)\\"");'
    user = make_library(
        tmp_path, "libu.so", needs=[hip], rpath="/opt/rocm-6.3.3/lib", code=comment + "int f(void){return 1;}"
    )
    data = {"demo/version.py": b"__version__ = '1.0'\nhip: Optional[str] = '6.3.42131'\n"}
    found = inspect_wheel(demo_wheel(tmp_path, {"libu.so": user.read_bytes()}, data=data, version="1.0+rocm6.3"))
    assert found.rocm_releases == ("6.3.3",)
    assert {e.rocm for e in found.rocm} == {"6", "6.3", "6.3.3"}


def test_the_platform_names_symbol_and_file(tmp_path: Path) -> None:
    library = make_library(tmp_path, "libcpu.so", code='#include <stdio.h>\nint f(void) { return puts("x"); }')
    driver = make_library(tmp_path, "libdriver.so", needs=[stub(tmp_path / "outside", "libcuda.so.1")])
    libraries = {path.name: path.read_bytes() for path in (library, driver)}
    found = inspect_wheel(demo_wheel(tmp_path, libraries))
    assert found.platform.startswith("manylinux_2_")  # what comes from outside forbids nothing
    assert found.needs[-1].library == "libcuda.so.1"
    assert found.needs[-1].where == "the NVIDIA driver"


def test_json_has_every_code_object_and_tables_every_section(tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030", "gfx1100"], ["gfx1030"])
    found = inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}, data={BLAS_DATA.format("gfx1030"): b"x"}))
    (row,) = json.loads(json.dumps(found.as_dict()))["libraries"]
    assert [[o["target"] for o in b["objects"]] for b in row["bundles"]] == [
        ["hipv4-amdgcn-amd-amdhsa--gfx1030", "hipv4-amdgcn-amd-amdhsa--gfx1100"],
        ["hipv4-amdgcn-amd-amdhsa--gfx1030"],
    ]
    titles = [table.title for table in tables(found, (answer(found, "gfx1030"),))]
    assert titles[0] == "Does it run on my card?"
    assert {"Bytes by part", "Bytes by GPU", "Data files by GPU", "Needs"} <= set(titles)


def test_rows_have_as_many_cells_as_columns(tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030", "gfx1100", "gfx906"])
    found = inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}))
    for table in tables(found, (answer(found, "gfx900"),)):
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title


def test_the_gpus_that_a_user_means(tmp_path: Path) -> None:
    assert wanted_gpus("RX 6600") == ("gfx1032",)
    assert wanted_gpus("gfx90a:xnack-") == ("gfx90a:xnack-",)
    assert wanted_gpus("") == ()
    with pytest.raises(UsageError, match="no AMD GPU"):
        wanted_gpus("auto", tmp_path)
    assert wanted_gpus("auto", make_machine(tmp_path / "root")) == ("gfx1032",)
