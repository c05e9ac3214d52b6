from __future__ import annotations

import shutil
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rocm_wheels.console import Console
from rocm_wheels.errors import UnknownCheck
from rocm_wheels.verify import Severity, VerifyOptions, catalogue, explain, verify
from tests.elf_fixtures import bundle, compressed, make_library
from tests.unit.test_elf import shifted_load
from tests.verify_docs import PAGE, checks, part
from tests.wheel_fixtures import make_wheel

TAG = "cp311-cp311-manylinux_2_41_x86_64"
ARCHS = ("gfx1030", "gfx1100")
Files = dict[str, bytes]


def parts(folder: Path, *, rpath: str = "$ORIGIN") -> dict[str, Path]:
    """Two libraries, one needing the other and the HIP runtime, all in the wheel."""
    runtime = make_library(
        folder, "libamdhip64.so.5", soname="libamdhip64.so.5", versions={"hip_5.0": "libamdhip64_so_5"}
    )
    core = make_library(
        folder, "libcore.so", needs=[runtime], rpath=rpath, new_dtags=False, bundles=[bundle(ARCHS), bundle(ARCHS)]
    )
    top = make_library(
        folder, "libtop.so", needs=[core], rpath=rpath, new_dtags=False, bundles=[compressed(bundle(ARCHS), 3)]
    )
    return {"runtime": runtime, "core": core, "top": top}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {k: p.read_bytes() for k, p in parts(tmp_path_factory.mktemp("parts")).items()}


@pytest.fixture
def files(built: dict[str, bytes]) -> Files:
    return {
        "minitorch/__init__.py": b"",
        "minitorch/licenses/hip.txt": b"The MIT License",
        "minitorch/lib/libamdhip64.so.5": built["runtime"],
        "minitorch/lib/libcore.so": built["core"],
        "minitorch/lib/libtop.so": built["top"],
    }


def found(path: Path, archs: Sequence[str] = ARCHS) -> dict[str, str]:
    (report,) = verify([path], VerifyOptions(archs=tuple(archs)), Console(quiet=True)).wheels
    return {f.check.id: f"{f.member}: {f.evidence}" for f in report.findings}


def wheel(folder: Path, files: Files, tag: str = TAG, **more: object) -> Path:
    return make_wheel(folder, "minitorch", "1.0+rocm5.7", tag, files, **more)  # type: ignore[arg-type]


def test_a_good_wheel_has_no_findings(tmp_path: Path, files: Files) -> None:
    assert found(wheel(tmp_path, files)) == {}


def change(name: str, path: str, make: Callable[[Path], bytes]) -> tuple[str, str, Callable[[Path], bytes]]:
    return name, path, make


TOP, CORE = "minitorch/lib/libtop.so", "minitorch/lib/libcore.so"


def needing(folder: Path, soname: str, **options: object) -> bytes:
    other = make_library(folder, soname, soname=soname)
    return make_library(folder, "libnew.so", needs=[other], new_dtags=False, **options).read_bytes()  # type: ignore[arg-type]


FAULTS: list[tuple[str, str, Callable[[Path], bytes]]] = [
    ("exec-stack", TOP, lambda d: make_library(d, "a.so", options=["-Wl,-z,execstack"]).read_bytes()),
    ("layout", TOP, lambda d: shifted_load(make_library(d, "a.so"))),
    ("elf-broken", TOP, lambda d: make_library(d, "a.so").read_bytes()[:700]),
    ("absolute-rpath", TOP, lambda d: make_library(d, "a.so", rpath="/build/src/lib").read_bytes()),
    ("empty-rpath", TOP, lambda d: make_library(d, "a.so", rpath="$ORIGIN:").read_bytes()),
    ("system-rpath", TOP, lambda d: make_library(d, "a.so", rpath="$ORIGIN:/opt/rocm/lib").read_bytes()),
    ("closure", TOP, lambda d: needing(d, "libmissing.so.1", rpath="$ORIGIN")),
    ("closure", TOP, lambda d: needing(d, "libcore.so", rpath="$ORIGIN/../elsewhere")),
    ("soname-major", TOP, lambda d: needing(d, "librocblas.so.6", rpath="$ORIGIN")),
    ("arch-missing", TOP, lambda d: make_library(d, "a.so", bundles=[bundle(["gfx1030"])]).read_bytes()),
    (
        "arch-missing",
        TOP,
        lambda d: make_library(d, "a.so", bundles=[bundle(ARCHS), bundle(["gfx1030"])]).read_bytes(),
    ),
    (
        "arch-uneven",
        TOP,
        lambda d: make_library(d, "a.so", bundles=[bundle(ARCHS), bundle([*ARCHS, "gfx906"])]).read_bytes(),
    ),
    ("bundle-broken", TOP, lambda d: make_library(d, "a.so", bundles=[b"garbage"]).read_bytes()),
    ("hashed-name", "minitorch/lib/librccl-0a1b2c3d.so.1", lambda d: make_library(d, "a.so").read_bytes()),
    ("data-missing", "minitorch/lib/librocblas.so.0", lambda d: make_library(d, "a.so").read_bytes()),
]


@pytest.mark.parametrize(("check", "member", "make"), FAULTS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FAULTS)])
def test_fault_is_found_by_the_right_check(
    tmp_path: Path, files: Files, check: str, member: str, make: Callable[[Path], bytes]
) -> None:
    files[member] = make(tmp_path / "make")
    if check == "soname-major":
        files["minitorch/lib/librocblas.so.4"] = make_library(tmp_path / "r", "librocblas.so.4").read_bytes()
        files["minitorch/lib/rocblas/library/TensileLibrary.dat"] = b"catalogue"
        for arch in ARCHS:
            files[f"minitorch/lib/rocblas/library/TensileLibrary_{arch}.co"] = b"code"
    report = found(wheel(tmp_path / "w", files))
    assert set(report) == {check}
    assert report[check].startswith(member)


def test_data_of_another_arch_is_no_data_and_an_empty_file_neither(tmp_path: Path, files: Files) -> None:
    files["minitorch/lib/librocblas.so.0"] = make_library(tmp_path / "m", "a.so").read_bytes()
    files["minitorch/lib/rocblas/library/TensileLibrary.dat"] = b"catalogue"
    files["minitorch/lib/rocblas/library/TensileLibrary_gfx1030.co"] = b"code"
    files["minitorch/lib/rocblas/library/TensileLibrary_gfx1100.co"] = b""
    report = found(wheel(tmp_path / "a", files))
    assert set(report) == {"data-missing"}
    files["minitorch/lib/rocblas/library/TensileLibrary_gfx1100.co"] = b"code"
    assert found(wheel(tmp_path / "b", files)) == {}


def test_cpu_wheel_with_a_rocm_name_is_refused(tmp_path: Path) -> None:
    plain = make_library(tmp_path / "m", "liba.so").read_bytes()
    assert set(found(wheel(tmp_path, {"minitorch/lib/liba.so": plain}))) == {"no-device-code"}


def test_tag_that_promises_too_much_names_symbol_and_file(tmp_path: Path, files: Files) -> None:
    code = '#include <stdlib.h>\n#include <math.h>\ndouble f(double x) { return hypot(x, atof(getenv("X"))); }'
    files[TOP] = make_library(tmp_path / "m", "a.so", code=code, options=["-lm"]).read_bytes()
    report = found(wheel(tmp_path, files, "cp311-cp311-manylinux_2_17_x86_64"))
    assert set(report) == {"platform"}
    assert report["platform"].startswith(TOP)
    assert "GLIBC_2.35" in report["platform"]


def test_binary_under_tag_any_is_refused(tmp_path: Path, files: Files) -> None:
    assert "platform" in found(wheel(tmp_path, files, "py3-none-any"))


def rewritten(path: Path, edit: Callable[[str, bytes], list[tuple[str, bytes]]]) -> Path:
    """The archive written again member by member, as a careless tool would."""
    target = path.parent / "again" / path.name
    target.parent.mkdir()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            for member, data in edit(name, old.read(name)):
                new.writestr(member, data)
    return target


@pytest.mark.parametrize(
    ("check", "edit"),
    [
        ("record", lambda n, d: [(n, d + b"x" if n == CORE else d)]),
        ("record", lambda n, d: [] if n == "minitorch/__init__.py" else [(n, d)]),
        ("record", lambda n, d: [(n, d), ("minitorch/extra.py", b"")] if n == CORE else [(n, d)]),
        ("record-unhashed", lambda n, d: [(n, b"".join(_unhash(d)) if n.endswith("RECORD") else d)]),
        ("tag-disagrees", lambda n, d: [(n, d.replace(b"2_41", b"2_17") if n.endswith("WHEEL") else d)]),
        ("metadata", lambda n, d: [(n, d.replace(b"Version: 1.0+rocm5.7", b"Version: 1.0") if "METADATA" in n else d)]),
        ("metadata", lambda n, d: [(n, d.replace(b"Name: minitorch", b"Name: torch") if "METADATA" in n else d)]),
        (
            "licence",
            lambda n, d: [(n, d.replace(b"\n\n", b"\nLicense-File: LICENSE\n\n", 1) if "METADATA" in n else d)],
        ),
        ("archive-broken", lambda n, d: [(n, d), (n, d)] if n == CORE else [(n, d)]),
        ("archive-broken", lambda n, d: [(n, d), ("../evil", b"")] if n == CORE else [(n, d)]),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archive_fault_is_found(
    tmp_path: Path, files: Files, check: str, edit: Callable[[str, bytes], list[tuple[str, bytes]]]
) -> None:
    assert check in found(rewritten(wheel(tmp_path, files), edit))


def _unhash(record: bytes) -> list[bytes]:
    return [b"minitorch/__init__.py,,\n" if b"__init__" in line else line for line in record.splitlines(keepends=True)]


def test_truncated_wheel_is_an_error_not_a_crash(tmp_path: Path, files: Files) -> None:
    path = wheel(tmp_path, files)
    path.write_bytes(path.read_bytes()[:-1000])
    assert set(found(path)) == {"archive-broken"}


def test_copies_under_two_names_are_reported(tmp_path: Path, files: Files) -> None:
    files["minitorch/lib/libcore.so.1"] = files[CORE]
    assert set(found(wheel(tmp_path, files))) == {"duplicate-content"}


def test_declared_external_library_is_no_gap(tmp_path: Path, files: Files) -> None:
    del files["minitorch/lib/libamdhip64.so.5"]
    path = wheel(tmp_path, files)
    assert set(found(path)) == {"closure"}
    declared = rewritten(
        path,
        lambda n, d: [(n, d.replace(b"\n\n", b"\nRequires-External: libamdhip64.so.5\n\n", 1) if "META" in n else d)],
    )
    assert "closure" not in found(declared)


def test_allowed_check_counts_as_a_warning(tmp_path: Path, files: Files) -> None:
    shutil.rmtree(tmp_path / "m", ignore_errors=True)
    files[TOP] = make_library(tmp_path / "m", "a.so", options=["-Wl,-z,execstack"]).read_bytes()
    options = VerifyOptions(archs=ARCHS, allow=("exec-stack",))
    report = verify([wheel(tmp_path, files)], options, Console(quiet=True))
    assert report.ok
    assert report.wheels[0].worst is Severity.WARNING


def test_unknown_check_names_the_nearest() -> None:
    with pytest.raises(UnknownCheck, match="exec-stack"):
        explain("exec-stak")


def test_every_check_says_what_why_and_what_mends_it() -> None:
    assert all(c.what and c.why and c.remedy for c in catalogue().values())


def test_every_check_is_documented_as_it_is_explained() -> None:
    assert part(PAGE.read_text("utf-8"), "checks") == checks(), "write it anew: python -m tests.verify_docs"


def test_rocm_library_that_is_only_opened_by_name_is_missed(tmp_path: Path, files: Files) -> None:
    source = tmp_path / "opener.c"
    source.write_text('const char *name(void) { return "libroctx64.so.4"; }')
    library = tmp_path / "libopener.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    opener = {"minitorch/lib/libopener.so": library.read_bytes()}
    assert "libroctx64.so.4" in found(wheel(tmp_path, files | opener))["dlopen-name"]
    beside = {"minitorch/lib/libroctx64.so.4": files[TOP]}
    assert "dlopen-name" not in found(wheel(tmp_path, files | opener | beside))
