"""Slim: the code objects that stay are the old ones, the file loads, and nothing else has changed."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import installer.sources
import pytest

from rocm_wheels.console import Console
from rocm_wheels.elf import ElfFile, offload
from rocm_wheels.elf.cut import Edited, apply_pieces, pointers_into, replace_section
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.errors import ArchMissing, NothingToSlim
from rocm_wheels.slim import MANIFEST, SlimPlan, slim
from rocm_wheels.slim.library import plan_library, slim_library, wanted
from rocm_wheels.wheel import WheelArchive
from tests.elf_fixtures import bundle, compressed, section_bytes
from tests.wheel_fixtures import make_wheel

ARCHS = ["gfx90a", "gfx1030", "gfx1100"]
CODE = {arch: b"\x7fELF" + arch.encode() * 5000 for arch in ARCHS}


def fat_bundle(archs: list[str] = ARCHS, salt: bytes = b"") -> bytes:
    """A bundle whose code objects differ by arch and by ``salt``, laid out on pages as clang does."""
    return bundle(archs, own={arch: CODE[arch] + salt for arch in archs}, align=4096)


def make_hip_library(folder: Path, bundles: list[bytes], *, options: tuple[str, ...] = (), extra: str = "") -> Path:
    """A library as hipcc makes it: wrappers with relocated pointers, data and code behind the device code."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fatbin").write_bytes(section_bytes(bundles))
    offsets, position = [], 0
    for each in bundles:
        position += -position % 4096
        offsets.append(position)
        position += len(each)
    words = ", ".join(f"{{0x48495046, 1, fatbin + {offset}, 0}}" for offset in offsets)
    source = folder / "hip.c"
    source.write_text(f"""
__asm__(".section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\nfatbin: .incbin \\"{folder / "fatbin"}\\"\\n.previous");
extern const char fatbin[] __attribute__((visibility("hidden")));
struct wrapper {{ unsigned magic, version; const void *binary, *unused; }};
__attribute__((section(".hipFatBinSegment"), used)) static struct wrapper wrappers[] = {{ {words} }};
const void *binary(int i) {{ return ((volatile struct wrapper *)wrappers)[i].binary; }}
static const char text[] = "behind the device code";
const char *message(void) {{ return text; }}
int counter = 41;
int count(void) {{ return ++counter; }}
{extra}
""")
    path = folder / "libhip.so"
    words_ = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(path), str(source), *options]
    subprocess.run(words_, check=True, capture_output=True, text=True)
    return path


def slimmed(path: Path, *archs: str) -> Path:
    elf = ElfFile.parse(path.read_bytes(), path.name)
    library = plan_library(elf, archs)
    assert library is not None
    out = path.with_name("slim.so")
    pieces = slim_library(elf, library)
    out.write_bytes(b"".join(apply_pieces(elf.bytes_at(0, elf.size), pieces)))
    edited, laid = Edited(elf, pieces), ElfFile.parse(out.read_bytes(), path.name)
    assert (edited.size, edited.sections, edited.segments) == (laid.size, laid.sections, laid.segments)
    return out


def code_objects(path: Path) -> list[dict[str, bytes]]:
    elf = ElfFile.parse(path.read_bytes(), path.name)
    return [{e.arch: offload.code_object(elf, b, e) for e in b.entries if e.arch} for b in offload.read_bundles(elf)]


LAYOUTS = {
    "GNU ld": (),
    "one segment for code and data": ("-Wl,-z,noseparate-code",),
    "packed relocations": ("-Wl,-z,pack-relative-relocs",),
    "large pages": ("-Wl,-z,max-page-size=0x10000",),
    "stripped": ("-s",),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pack", ["plain", "zlib 1", "zstd 2", "zstd 3"])
def test_the_kept_code_objects_are_the_old_ones_where_the_wrappers_point(
    tmp_path: Path, layout: str, pack: str
) -> None:
    bundles = [fat_bundle(salt=b"a" * 20000), fat_bundle(salt=b"b")]
    if pack != "plain":
        method, version = pack.split()
        bundles = [compressed(each, int(version), method) for each in bundles]
    old = make_hip_library(tmp_path, bundles, options=LAYOUTS[layout])
    new = slimmed(old, "gfx1030")
    assert code_objects(new) == [{"gfx1030": each["gfx1030"]} for each in code_objects(old)]
    elf = ElfFile.parse(new.read_bytes(), new.name)
    assert check_layout(elf) == ()
    section = elf.section(offload.SECTION)
    assert section is not None
    library = ctypes.CDLL(str(new))
    library.binary.restype, library.message.restype = ctypes.c_void_p, ctypes.c_char_p
    for index, each in enumerate(offload.read_bundles(elf)):
        mapped = ctypes.string_at(library.binary(index), each.size)
        assert mapped == bytes(elf.section_bytes(offload.SECTION)[each.offset : each.offset + each.size])
    assert library.message() == b"behind the device code"
    assert (library.count(), library.count()) == (42, 43)


def test_the_file_itself_becomes_smaller(tmp_path: Path) -> None:
    old = make_hip_library(tmp_path, [fat_bundle(salt=b"x" * 200_000)])
    removed = 2 * 200_000
    assert old.stat().st_size - slimmed(old, "gfx1030").stat().st_size > 0.9 * removed


def test_everything_but_the_device_code_stays_at_its_address(tmp_path: Path) -> None:
    old = make_hip_library(tmp_path, [fat_bundle(salt=b"x" * 50_000)])
    before, after = (ElfFile.parse(p.read_bytes(), p.name) for p in (old, slimmed(old, "gfx1030")))
    moved = {"", offload.SECTION, offload.WRAPPERS, ".rela.dyn"}
    for section in before.sections:
        now = after.section(section.name)
        assert now is not None and now.address == section.address
        if section.name not in moved and section.type != 8:
            assert bytes(after.section_bytes(section.name)) == bytes(before.section_bytes(section.name))


def test_a_library_that_others_may_look_into_keeps_its_bundles_in_place(tmp_path: Path) -> None:
    extra = '__asm__(".globl exported\\n.set exported, fatbin\\n.type exported, @object\\n.size exported, 8");'
    old = make_hip_library(tmp_path, [fat_bundle(), fat_bundle(salt=b"b")], extra=extra)
    new = slimmed(old, "gfx1030")
    assert new.stat().st_size == old.stat().st_size
    assert code_objects(new) == [{"gfx1030": each["gfx1030"]} for each in code_objects(old)]
    before, after = (ElfFile.parse(p.read_bytes(), p.name) for p in (old, new))
    assert [b.offset for b in offload.read_bundles(after)] == [b.offset for b in offload.read_bundles(before)]
    assert bytes(after.section_bytes(offload.SECTION)).count(b"gfx1100") == 0


def test_a_program_keeps_its_size(tmp_path: Path) -> None:
    options = ("-pie", "-fPIE", "-Wl,-E")
    main = "int main(void) { return count() == 42 ? 0 : 1; }"
    path = make_hip_library(tmp_path, [fat_bundle(salt=b"x" * 50_000)], extra=main)
    program = path.with_name("program")
    subprocess.run(["gcc", *options, "-o", str(program), str(tmp_path / "hip.c")], check=True)
    new = slimmed(program, "gfx1030")
    new.chmod(0o755)
    assert new.stat().st_size == program.stat().st_size
    assert subprocess.run([str(new)], check=False).returncode == 0


def test_bundles_among_the_constants_are_emptied_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "embedded").write_bytes(fat_bundle(salt=b"embedded"))
    extra = f'''
__asm__(".section .rodata\\n.p2align 4\\nembedded: .incbin \\"{tmp_path / "embedded"}\\"\\n.previous");
extern const char embedded[] __attribute__((visibility("hidden")));
const void *constant(void) {{ return embedded; }}'''
    old = make_hip_library(tmp_path, [fat_bundle()], extra=extra)
    new = slimmed(old, "gfx1030")
    elf = ElfFile.parse(new.read_bytes(), new.name)
    (constant,) = offload.embedded_bundles(elf)
    assert constant.archs == {"gfx1030"}
    code = offload.code_object(elf, constant, constant.entries[1])
    assert code == CODE["gfx1030"] + b"embedded"
    library = ctypes.CDLL(str(new))
    library.constant.restype = ctypes.c_void_p
    assert code in ctypes.string_at(library.constant(), constant.size)
    assert b"gfx1100" * 3 not in new.read_bytes()


def test_longer_content_is_refused(tmp_path: Path) -> None:
    path = make_hip_library(tmp_path, [fat_bundle()])
    elf = ElfFile.parse(path.read_bytes(), path.name)
    section = elf.section(offload.SECTION)
    assert section is not None and len(pointers_into(elf, section)) == 1
    with pytest.raises(ValueError, match="do not fit"):
        replace_section(elf, section, bytes(section.size + 1))


# --- what stays -------------------------------------------------------------------------------------------------------


def test_both_forms_of_a_gpu_stay_when_no_feature_is_asked_for() -> None:
    available = ["gfx90a:xnack+", "gfx90a:xnack-", "gfx1030"]
    assert wanted(available, ["gfx90a"], "x") == {"gfx90a:xnack+", "gfx90a:xnack-"}
    assert wanted(available, ["gfx90a:xnack-"], "x") == {"gfx90a:xnack-"}


def test_generic_code_stays_for_a_gpu_that_has_no_own() -> None:
    assert wanted(["gfx10-3-generic", "gfx1100"], ["gfx1032"], "x") == {"gfx10-3-generic"}


def test_a_gpu_that_only_an_override_would_serve_is_refused_with_the_override() -> None:
    with pytest.raises(ArchMissing, match="HSA_OVERRIDE_GFX_VERSION=10.3.0"):
        wanted(["gfx1030"], ["gfx1032"], "libx.so")


# --- whole wheels -----------------------------------------------------------------------------------------------------


def make_fat_wheel(tmp_path: Path, files: dict[str, bytes] | None = None, version: str = "1.0+rocm5.7") -> Path:
    library = make_hip_library(tmp_path / "lib", [fat_bundle(), fat_bundle(salt=b"b")])
    data = {f"demo/lib/rocblas/library/TensileLibrary_{arch}.dat": arch.encode() * 100 for arch in ARCHS}
    data["demo/lib/rocblas/library/TensileLibrary_fallback.dat"] = b"for all"
    members = {"demo/__init__.py": b"", "demo/lib/libk.so": library.read_bytes(), **data, **(files or {})}
    return make_wheel(tmp_path, version=version, files=members)


def make_slim(wheel: Path, *archs: str, build: bool = False) -> tuple[SlimPlan, Path]:
    dest = wheel.parent / "slim"
    plan = slim(wheel, archs, dest, Console(quiet=True), build=build)
    return plan, dest / plan.name


def test_a_slim_wheel_has_a_version_of_its_own_and_is_whole(tmp_path: Path) -> None:
    plan, path = make_slim(make_fat_wheel(tmp_path), "gfx1030")
    assert path.name == "demo-1.0+rocm5.7.gfx1030-cp311-cp311-linux_x86_64.whl"
    with installer.sources.WheelFile.open(path) as source:
        source.validate_record(validate_contents=True)
    with WheelArchive.open(path) as archive:
        names = {m.name for m in archive.members}
        assert "Version: 1.0+rocm5.7.gfx1030\n" in archive.metadata
        manifest = json.loads(archive.read(f"{archive.dist_info}/{MANIFEST}"))
    assert "demo/lib/rocblas/library/TensileLibrary_gfx1030.dat" in names
    assert "demo/lib/rocblas/library/TensileLibrary_fallback.dat" in names
    assert not any("gfx90a" in name for name in names)
    assert manifest["libraries"][0]["removed"] == ["gfx1100", "gfx90a"]
    assert plan.removed_size > 2 * 4 * 5000


def test_the_package_says_the_version_that_the_wheel_has(tmp_path: Path) -> None:
    text = b"# version = '1.0+rocm5.7'\n__version__ = '1.0+rocm5.7'\nhip: str = '5.7'\n"
    _, path = make_slim(make_fat_wheel(tmp_path, {"demo/version.py": text}), "gfx1030")
    with WheelArchive.open(path) as archive:
        said = archive.read("demo/version.py")
    assert said == text.replace(b"\n__version__ = '1.0+rocm5.7'", b"\n__version__ = '1.0+rocm5.7.gfx1030'")


def test_a_build_tag_keeps_the_version(tmp_path: Path) -> None:
    _, path = make_slim(make_fat_wheel(tmp_path), "gfx1030", "gfx1100", build=True)
    assert path.name == "demo-1.0+rocm5.7-1gfx1030gfx1100-cp311-cp311-linux_x86_64.whl"
    with WheelArchive.open(path) as archive:
        assert "Build: 1gfx1030gfx1100\n" in archive.wheel_file
        assert archive.dist_info == "demo-1.0+rocm5.7.dist-info"


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    wheel = make_fat_wheel(tmp_path)
    first = make_slim(wheel, "gfx1030")[1].read_bytes()
    assert make_slim(wheel, "gfx1030")[1].read_bytes() == first


def test_a_library_without_the_gpu_refuses_the_wheel_and_is_named(tmp_path: Path) -> None:
    other = make_hip_library(tmp_path / "other", [fat_bundle(["gfx90a"])]).read_bytes()
    wheel = make_fat_wheel(tmp_path, {"demo/lib/libother.so": other})
    with pytest.raises(ArchMissing, match=r"libother\.so.*no code for gfx1030"):
        make_slim(wheel, "gfx1030")
    assert not (tmp_path / "slim").exists()


def test_missing_data_of_rocblas_refuses_the_wheel(tmp_path: Path) -> None:
    wheel = make_fat_wheel(tmp_path, {"other/lib/rocblas/library/Tensile_gfx90a.dat": b"x"})
    with pytest.raises(ArchMissing, match=r"other/lib/rocblas/ has no data for gfx1030.*\n.*it has gfx90a"):
        make_slim(wheel, "gfx1030")


@pytest.mark.parametrize("component", ["hipblaslt", "hipsparselt", "miopen", "aotriton.images"])
def test_data_that_a_gpu_does_without_refuses_nothing_and_goes(tmp_path: Path, component: str) -> None:
    name = f"demo/lib/{component}/gfx90a.dat"
    plan, path = make_slim(make_fat_wheel(tmp_path, {name: b"x"}), "gfx1030")
    assert (name, 1) in plan.data
    with WheelArchive.open(path) as archive:
        assert name not in archive


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    wheel = make_fat_wheel(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert slim(wheel, ["gfx1030"], tmp_path / "slim", Console(quiet=True), dry_run=True).removed_size
    assert sorted(tmp_path.rglob("*")) == before


def test_a_wheel_without_other_gpus_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(NothingToSlim, match="has no GPU code"):
        make_slim(make_wheel(tmp_path), "gfx1030")
    with pytest.raises(NothingToSlim):
        make_slim(make_slim(make_fat_wheel(tmp_path), "gfx1030")[1], "gfx1030")
