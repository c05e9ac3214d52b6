"""One good wheel, and what verify says of every single corruption of it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from rocm_wheels.console import Console
from rocm_wheels.verify import VerifyOptions, verify
from tests.elf_fixtures import bundle, compressed
from tests.verify_corruptions import (
    ARCHS,
    BLAS,
    COMMIT,
    CORE,
    DATA,
    EXTENSION,
    HIP,
    LIB,
    NAME,
    PT_LOAD,
    PT_PHDR,
    PT_STACK,
    PYTHON,
    TAG,
    TOP,
    Corruption,
    Files,
    Parts,
    added,
    at_central,
    at_local,
    compiled,
    dynamic,
    field_at,
    flipped_content,
    good_files,
    header,
    member,
    objcopied,
    retagged,
    segment,
    setting,
    stub,
    swapped,
    true_bundle,
    wheel_header,
    without,
    without_all,
    zip64_block_without_need,
)

C = Corruption
TENSILE = "TensileLibrary_Type_SS_Contraction_l_Ailk_Bjlk_Cijk_Dijk_gfx1030"
FALLBACK = "TensileLibrary_Type_DD_Contraction_l_Ailk_Bjlk_Cijk_Dijk_fallback"


def _blank_first(data: bytes) -> bytes:
    at = data.index(b"__CLANG_OFFLOAD_BUNDLE__")
    return data[:at] + bytes(len(true_bundle())) + data[at + len(true_bundle()) :]


def _noise(data: bytes) -> bytes:
    return data[:40] + bytes(b ^ 0x5A for b in data[40:])


ARCHIVE = [
    C("archive-broken", "cut short", packed=lambda d: d[:-1000]),
    C("archive-broken", "bytes before the first member", packed=lambda d: b"#!/bin/sh\n" + d),
    C("archive-broken", "bytes after the end", packed=lambda d: d + b"x"),
    C("archive-broken", "ZIP64 block without need", packed=zip64_block_without_need),
    C("archive-broken", "another size in the local header", packed=at_local(22, "I", 7)),
    C("archive-broken", "another CRC in the local header", packed=at_local(14, "I", 7)),
    C("archive-broken", "another name in the local header", packed=at_local(30, "B", 0x21)),
    C("archive-broken", "another size in the directory", packed=at_central(24, "I", 7)),
    C("archive-broken", "a method nobody has", packed=at_central(10, "H", 99)),
    C("archive-broken", "encrypted", packed=at_central(8, "H", 1)),
    C("archive-broken", "an offset into nowhere", packed=at_central(42, "I", 3)),
    C("archive-broken", "a bit of a member flipped", packed=flipped_content),
    C("archive-broken", "a name that leaves", parts=added(______etc__passwd=b"x")),
    C("archive-broken", "an absolute name", parts=added(__etc__passwd=b"x")),
    C("special-file", "a symbolic link", parts=setting(modes={CORE: 0o120777})),
    C("special-file", "set-uid", parts=setting(modes={CORE: 0o104755})),
    C("mode", "anybody may write", parts=setting(modes={CORE: 0o100777})),
    C("mode", "nobody else may read", parts=setting(modes={CORE: 0o100700})),
    C("name-clash", "file and directory", parts=added(minitorch__lib=b"x")),
    C(
        "record",
        "wrong hash",
        parts=setting(record=lambda r: [x.replace(f"{CORE},sha256=", f"{CORE},sha256=A") for x in r]),
    ),
    C("record", "wrong size", parts=setting(record=lambda r: [x + "0" if x.startswith(CORE) else x for x in r])),
    C("record", "row missing", parts=setting(record=lambda r: [x for x in r if not x.startswith(CORE)])),
    C("record", "row of no file", parts=setting(record=lambda r: [*r, "minitorch/gone.py,sha256=x,1"])),
    C("record", "row twice", parts=setting(record=lambda r: [r[0], *r])),
    C("record", "md5", parts=setting(record=lambda r: [x.replace(f"{CORE},sha256=", f"{CORE},md5=") for x in r])),
    C(
        "record-unhashed",
        "no hash",
        parts=setting(record=lambda r: [f"{CORE},," if x.startswith(CORE) else x for x in r]),
    ),
    C("metadata", "RECORD is no CSV", parts=setting(record=lambda r: [*r, '"'])),
    C("metadata", "RECORD of two columns", parts=setting(record=lambda r: [*r, "a,b"])),
]

PACKAGE = [
    C("metadata", "no WHEEL", parts=setting(without=frozenset({"WHEEL"}))),
    C("metadata", "no METADATA", parts=setting(without=frozenset({"METADATA"}))),
    C("metadata", "no RECORD", parts=setting(without=frozenset({"RECORD"}))),
    C("metadata", "two dist-info directories", parts=added(**{"other-1_dot_dist-info__METADATA": b""})),
    C("metadata", "another name", parts=header("Name", "torch")),
    C("metadata", "another version", parts=header("Version", "1.1")),
    C("metadata", "no version", parts=header("Version", None)),
    C("metadata", "a requirement that is none", parts=header("Requires-Dist", "numpy >>1")),
    C("metadata", "a Python range that is none", parts=header("Requires-Python", "three")),
    C("metadata", "dist-info of another wheel", parts=setting(info="minitorch-0.9.dist-info")),
    C("metadata", "Wheel-Version of the future", parts=wheel_header("Wheel-Version", "2.0")),
    C("metadata-format", "licence of a newer format", parts=header("License-Expression", "MIT")),
    C("tag-disagrees", "platform", parts=wheel_header("Tag", TAG.replace("2_41", "2_17"))),
    C("tag-disagrees", "Python", parts=wheel_header("Tag", TAG.replace(PYTHON, "399"))),
    C("purelib", "pure", parts=wheel_header("Root-Is-Purelib", "true")),
    C("licence", "named and not there", parts=header("License-File", "COPYING")),
    C("licence-missing", "no text for ROCm", parts=without("INFO/licenses/rocm/all.txt")),
]

ELF = [
    C("exec-stack", "flag", parts=member(TOP, segment(PT_STACK, "flags", 7))),
    C("exec-stack", "no header", parts=member(TOP, segment(PT_STACK, "type", 0))),
    C("layout", "LOAD out of step", parts=member(TOP, segment(PT_LOAD, "vaddr", 0x123456, 3))),
    C("layout", "LOAD past the end", parts=member(TOP, segment(PT_LOAD, "filesz", 1 << 32, 1))),
    C("layout", "LOADs out of order", parts=member(TOP, segment(PT_LOAD, "vaddr", 0, 1))),
    C("layout", "alignment of three", parts=member(TOP, segment(PT_LOAD, "align", 3, 1))),
    C("layout", "more in the file than in memory", parts=member(TOP, segment(PT_LOAD, "memsz", 1, 1))),
    C("layout", "PHDR in no LOAD", parts=member(TOP, segment(PT_STACK, "type", PT_PHDR))),
    C("elf-broken", "cut short", parts=member(TOP, lambda d: d[:700])),
    C("elf-broken", "section headers in nowhere", parts=member(TOP, field_at(40, "Q", 1 << 40))),
    C("elf-broken", "string table in nowhere", parts=member(TOP, dynamic(5, value=1 << 40))),
    C("elf-broken", "a name past its table", parts=member(TOP, dynamic(1, value=1 << 30))),
    C("elf-broken", "32 bits", parts=member(TOP, field_at(4, "B", 1))),
    C("wrong-machine", "AArch64", parts=member(TOP, field_at(18, "H", 183))),
    C("text-relocations", "flag", parts=member(TOP, dynamic(0x6FFFFFF9, new_tag=22))),
    C("absolute-rpath", "build host", parts=compiled(TOP, rpath="/home/ci/build/lib", bundles=[true_bundle()])),
    C("absolute-rpath", "current directory", parts=compiled(TOP, rpath="../lib", bundles=[true_bundle()])),
    C("empty-rpath", "at the end", parts=compiled(TOP, rpath="$ORIGIN:", bundles=[true_bundle()])),
    C("system-rpath", "/opt/rocm", parts=compiled(TOP, rpath="$ORIGIN:/opt/rocm/lib", bundles=[true_bundle()])),
    C("layout-missing", "one family", parts=compiled(TOP, rpath="$ORIGIN/../../_rocm_sdk_libraries_gfx110X/lib")),
    C("runpath", "new tag", parts=member(BLAS, dynamic(15, new_tag=29))),
    C("version-needs", "need renamed", parts=member(CORE, dynamic(1, new_tag=0x6FFFFEF5))),
]

LIBRARIES = [
    C("closure", "taken out", parts=without(HIP)),
    C("closure", "no path to it", parts=member(TOP, dynamic(15, new_tag=21))),
    C("closure", "path to another place", parts=member(TOP, swapped(b"$ORIGIN\0", b"$ORIGIX\0"))),
    C(
        "closure",
        "of nobody",
        parts=compiled(TOP, needs=stub("libgone.so.1"), rpath="$ORIGIN", bundles=[true_bundle()]),
    ),
    C(
        "closure",
        "of the builder's /opt/rocm",
        parts=compiled(TOP, needs=stub("librccl.so.1"), rpath="/opt/rocm/lib", bundles=[true_bundle()]),
    ),
    C(
        "soname-major",
        "HIP 6",
        parts=compiled(TOP, needs=stub("libamdhip64.so.6"), rpath="$ORIGIN", bundles=[true_bundle()]),
    ),
    C("defined-versions", "an older HIP", parts=compiled(HIP, versions={"hip_4.2": "libamdhip64_so_5"})),
    C("hashed-name", "by auditwheel", parts=compiled(f"{LIB}/librccl-0a1b2c3d.so.1")),
    C(
        "duplicate-content",
        "under the bare name",
        parts=lambda p, _: p.files.update({f"{LIB}/libcore.so.1": p.files[CORE]}),
    ),
    C(
        "dlopen-name",
        "in constants",
        parts=compiled(f"{LIB}/libopener.so", code='const char *name(void) { return "libroctx64.so.4"; }'),
    ),
    C(
        "dlopen-name",
        "in Python",
        parts=added(minitorch__load_dot_py=b"import ctypes\nctypes.CDLL('libroctx64.so.4')\n"),
    ),
    C(
        "data-path",
        "amdgpu.ids",
        parts=compiled(
            f"{LIB}/libdrm_x.so", code='const char *f(void) { return "/opt/amdgpu/share/libdrm/amdgpu.ids"; }'
        ),
    ),
    C("platform", "an older tag", parts=retagged("manylinux_2_17")),
    C("platform", "any", parts=setting(tag="py3-none-any")),
]

IDENTITY = [
    C("no-device-code", "a CPU build", parts=lambda p, d: (compiled(CORE)(p, d), compiled(TOP)(p, d))[0]),
    C("version-inside", "CPU version", parts=member("minitorch/version.py", swapped(b"rocm5.7", b"cpu+1.1"))),
    C("version-inside", "older", parts=member("minitorch/version.py", swapped(b"'1.0+", b"'0.9+"))),
    C("hip-inside", "None", parts=member("minitorch/version.py", swapped(b"hip = '5.7.1'", b"hip = None"))),
    C("stale", "older sources", parts=member("minitorch/version.py", swapped(b"0123456789", b"ffffffffff"))),
    C(
        "rocm-disagrees",
        "named after ROCm 6",
        parts=setting(
            version="1.0+rocm6.2", metadata=["Metadata-Version: 2.1", f"Name: {NAME}", "Version: 1.0+rocm6.2"]
        ),
    ),
    C(
        "rocm-disagrees",
        "symbols of a newer one",
        parts=compiled(
            TOP,
            needs=stub("libamdhip64.so.5", versions={"hip_5.9": "f"}, code="int f(void) { return 1; }"),
            code="extern int f(void); int g(void) { return f(); }",
            rpath="$ORIGIN",
            bundles=[true_bundle()],
        ),
    ),
    C("rocm-disagrees", "requires the next SDK", parts=header("Requires-Dist", "rocm-sdk-core==7.0.*")),
    C("cuda-inside", "requirement", parts=header("Requires-Dist", "nvidia-cublas-cu12==12.8.4.1")),
    C("cuda-inside", "needs", parts=compiled(f"{LIB}/libx.so", needs=stub("libcudart.so.12"))),
    C("cuda-inside", "code", parts=objcopied(CORE, "--add-section", ".nv_fatbin={folder}/bytes")),
    C("renamed", "torch-rocm", parts=added(torch__functional_dot_py=b"")),
    C("empty-wheel", "placeholder", parts=lambda p, _: p.files.clear()),
    C(
        "python-abi",
        "another Python",
        parts=lambda p, _: p.files.update({EXTENSION.replace(PYTHON, "399"): p.files.pop(EXTENSION)}),
    ),
    C("python-abi", "needs libpython", parts=compiled(EXTENSION, needs=stub("libpython3.11.so.1.0"))),
]

COVERAGE = [
    C(
        "arch-missing",
        "in one bundle",
        parts=compiled(CORE, rpath="$ORIGIN", bundles=[true_bundle(), true_bundle(ARCHS[:1])]),
    ),
    C(
        "arch-missing",
        "empty code object",
        parts=compiled(CORE, rpath="$ORIGIN", bundles=[bundle(ARCHS, empty=["gfx1100"])]),
    ),
    C("arch-missing", "another variant", parts=compiled(CORE, bundles=[bundle(["gfx1030", "gfx1100:xnack-"])])),
    C(
        "arch-uneven",
        "left from an older list",
        parts=compiled(CORE, rpath="$ORIGIN", bundles=[true_bundle(), true_bundle((*ARCHS, "gfx906"))]),
    ),
    C("bundle-target", "code for another GPU", parts=member(CORE, swapped(b"--gfx1100", b"--gfx1101"))),
    C("bundle-broken", "garbage", parts=compiled(CORE, bundles=[b"garbage"])),
    C("bundle-broken", "magic damaged", parts=member(CORE, swapped(b"__CLANG_OFFLOAD", b"__CLONG_OFFLOAD"))),
    C("bundle-broken", "one bundle of two gone", parts=member(CORE, lambda d: _blank_first(d))),
    C("bundle-broken", "too many entries", parts=member(CORE, swapped(b"BUNDLE__\3", b"BUNDLE__\xff"))),
    C("bundle-broken", "entry past the section", parts=compiled(CORE, bundles=[true_bundle()[:-60]])),
    C(
        "bundle-broken",
        "compressed stream damaged",
        parts=compiled(CORE, bundles=[_noise(compressed(true_bundle(), 3))]),
    ),
    C("bundle-broken", "version of the future", parts=member(TOP, swapped(b"CCOB\3", b"CCOB\x09"))),
    C("bundle-broken", "device code removed", parts=objcopied(CORE, "--remove-section=.hip_fatbin")),
    C(
        "split-device-code",
        "kpack",
        parts=objcopied(CORE, "--remove-section=.hip_fatbin", "--add-section", ".rocm_kpack_ref={folder}/bytes"),
    ),
    C("data-missing", "no directory", parts=without_all(DATA)),
    C("data-missing", "one GPU", parts=without_all(DATA, "gfx1100")),
    C("data-missing", "empty file", parts=member(f"{DATA}/{TENSILE}.co", lambda d: b"")),
    C("data-missing", "code object of a part", parts=without(f"{DATA}/{TENSILE}.co")),
    C("data-missing", "catalogue of a part", parts=without(f"{DATA}/{TENSILE}.dat")),
    C("data-missing", "master catalogue", parts=without(f"{DATA}/TensileLibrary_lazy_gfx1030.dat")),
    C("data-missing", "fallback catalogue", parts=without(f"{DATA}/{FALLBACK}.dat")),
    C("data-missing", "kernels", parts=without(f"{DATA}/Kernels.so-000-gfx1030.hsaco")),
    C("data-missing", "both files of a part", parts=without(f"{DATA}/{TENSILE}.co", f"{DATA}/{TENSILE}.dat")),
    C("tuning-missing", "of one GPU", parts=without("minitorch/share/miopen/db/gfx1100_20.HIP.fdb.txt")),
]

ALL = [*ARCHIVE, *PACKAGE, *ELF, *LIBRARIES, *IDENTITY, *COVERAGE]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return good_files(tmp_path_factory.mktemp("good"))


def judged(path: Path) -> dict[str, str]:
    (report,) = verify([path], VerifyOptions(archs=ARCHS, commit=COMMIT), Console(quiet=True)).wheels
    return {f.check.id: f"{f.member}: {f.evidence}" for f in report.findings}


def test_the_good_wheel_has_no_findings(tmp_path: Path, good: Files) -> None:
    assert judged(Parts(dict(good)).write(tmp_path)) == {}


@pytest.mark.parametrize("corruption", ALL, ids=str)
def test_corruption_is_caught_by_its_check(tmp_path: Path, good: Files, corruption: Corruption) -> None:
    parts = Parts(copy.copy(good))
    if corruption.parts:
        corruption.parts(parts, tmp_path)
    path = parts.write(tmp_path / "wheel")
    if corruption.packed:
        path.write_bytes(corruption.packed(path.read_bytes()))
    assert corruption.check in judged(path)


def test_large_file_that_is_stored_is_reported(tmp_path: Path, good: Files) -> None:
    big = {"minitorch/table.bin": bytes(2 << 20)}
    path = Parts({**good, **big}, stored=frozenset(big)).write(tmp_path)
    assert set(judged(path)) == {"stored"}


def test_there_are_many_corruptions_of_many_kinds() -> None:
    assert len(ALL) >= 60
    assert len({c.check for c in ALL}) >= 40
