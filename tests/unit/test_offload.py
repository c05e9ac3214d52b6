from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_wheels.elf import ElfFile, offload
from rocm_wheels.elf.processors import PROCESSORS, same_target, target_of
from rocm_wheels.errors import BrokenBundle, RocmWheelsError
from rocm_wheels.gpu import GENERIC_TARGETS, KNOWN_TARGETS
from tests.elf_fixtures import bundle, code, compressed, make_library

TWO = bundle(["gfx90a:xnack-", "gfx1100"])


def library(folder: Path, *bundles: bytes) -> ElfFile:
    path = make_library(folder, "libk.so", bundles=bundles)
    return ElfFile.parse(path.read_bytes(), path.name)


def test_every_bundle_is_read_and_the_intersection_counts(tmp_path: Path) -> None:
    elf = library(tmp_path, TWO, bundle(["gfx90a:xnack-"]))
    bundles = offload.read_bundles(elf)
    assert [sorted(b.archs) for b in bundles] == [["gfx1100", "gfx90a:xnack-"], ["gfx90a:xnack-"]]
    assert offload.archs(elf) == {"gfx90a:xnack-"}


@pytest.mark.parametrize(("version", "method"), [(1, "zlib"), (1, "zstd"), (2, "zstd"), (3, "zstd"), (2, "zlib")])
def test_compressed_bundles_of_all_versions_are_read(tmp_path: Path, version: int, method: str) -> None:
    elf = library(tmp_path, compressed(TWO, version, method), TWO)
    bundles = offload.read_bundles(elf)
    assert [b.compression for b in bundles] == [method, "none"]
    assert all(b.archs == {"gfx90a:xnack-", "gfx1100"} for b in bundles)
    assert offload.code_object(elf, bundles[0], bundles[0].entries[1]) == b"\x7fELF code"


def test_entry_of_size_zero_is_no_coverage(tmp_path: Path) -> None:
    elf = library(tmp_path, bundle(["gfx1030", "gfx1100"], empty=["gfx1030"]))
    assert offload.archs(elf) == {"gfx1100"}


def test_library_without_device_code_has_no_bundles(tmp_path: Path) -> None:
    path = make_library(tmp_path, "a.so")
    elf = ElfFile.parse(path.read_bytes(), path.name)
    assert offload.read_bundles(elf) == ()
    assert offload.archs(elf) == frozenset()


def test_number_of_wrappers_must_be_that_of_bundles(tmp_path: Path) -> None:
    path = make_library(tmp_path, "a.so", bundles=[TWO, TWO])
    data = path.read_bytes().replace(b"__CLANG_OFFLOAD_BUNDLE__", bytes(24), 1)
    at = path.read_bytes().index(b"__CLANG_OFFLOAD_BUNDLE__")
    data = data[:at] + bytes(len(TWO)) + data[at + len(TWO) :]
    with pytest.raises(BrokenBundle, match="1 offload bundles"):
        offload.read_bundles(ElfFile.parse(data, "a.so"))


def test_garbage_between_bundles_is_an_error_with_the_offset(tmp_path: Path) -> None:
    with pytest.raises(BrokenBundle, match="at 0x1000"):
        offload.read_bundles(library(tmp_path, TWO, b"garbage"))


def test_truncated_compressed_bundle_is_an_error(tmp_path: Path) -> None:
    whole = compressed(TWO, 3)
    with pytest.raises(BrokenBundle):
        offload.read_bundles(library(tmp_path, whole[:-6] + bytes(6)))


def test_code_object_for_another_target_than_declared_is_seen(tmp_path: Path) -> None:
    true, false = code(0x36), code(0x41)
    plain = library(tmp_path, bundle(["gfx1030"], payload=true), bundle(["gfx1030"], payload=false))
    packed = library(tmp_path / "c", compressed(bundle(["gfx1030"], payload=false), 3))
    assert [e.flagged for b in offload.read_bundles(plain) for e in b.entries if e.arch] == ["gfx1030", "gfx1100"]
    assert [all(e.is_true for e in b.entries) for b in offload.read_bundles(plain)] == [True, False]
    assert not all(e.is_true for b in offload.read_bundles(packed) for e in b.entries)


@pytest.mark.parametrize(
    ("declared", "flags", "true"),
    [
        ("gfx90a", 0x3F | 0x100 | 0x400, True),
        ("gfx90a:xnack-", 0x3F | 0x200 | 0x400, True),
        ("gfx90a:xnack-", 0x3F | 0x300, False),
        ("gfx90a:sramecc+:xnack-", 0x3F | 0xC00 | 0x200, True),
        ("gfx90a:sramecc+", 0x3F | 0x800, False),
        ("gfx11-generic", 0x54, True),
        ("gfx1100", 0x54, False),
    ],
)
def test_flags_name_processor_and_features(declared: str, flags: int, true: bool) -> None:
    assert same_target(declared, target_of(flags)) is true


def test_every_known_target_has_a_number() -> None:
    missing = set(KNOWN_TARGETS + GENERIC_TARGETS) - set(PROCESSORS.values())
    assert not missing


def test_bundles_among_constants_count_and_the_magic_alone_does_not(tmp_path: Path) -> None:
    file = tmp_path / "constants"
    lone = b"bundle starts with __CLANG_OFFLOAD_BUNDLE__ and a number\0" + offload._MAGIC + b"\1" + bytes(40)
    host_only = bundle([])
    file.write_bytes(lone + bytes(5) + TWO + b"x" * 7 + bundle(["gfx942"]) + host_only)
    data = f'__asm__(".section .rodata\\n.incbin \\"{file}\\"\\n.previous");'
    path = make_library(tmp_path, "a.so", code=data)
    elf = ElfFile.parse(path.read_bytes(), path.name)
    bundles = offload.embedded_bundles(elf)
    assert [sorted(b.archs) for b in bundles] == [["gfx1100", "gfx90a:xnack-"], ["gfx942"]]
    assert offload.code_object(elf, bundles[0], bundles[0].entries[1]) == b"\x7fELF code"
    assert offload.read_bundles(elf) == ()


def test_section_that_was_removed_while_its_wrappers_stay_is_an_error(tmp_path: Path) -> None:
    path = make_library(tmp_path, "a.so", bundles=[TWO])
    subprocess.run(["objcopy", "--remove-section=.hip_fatbin", str(path)], check=True)
    with pytest.raises(BrokenBundle, match="0 offload bundles"):
        offload.read_bundles(ElfFile.parse(path.read_bytes(), "a.so"))


def test_code_that_was_split_off_is_told_from_code_that_is_missing(tmp_path: Path) -> None:
    path = make_library(tmp_path, "a.so", bundles=[TWO])
    subprocess.run(["objcopy", "--remove-section=.hip_fatbin", str(path)], check=True)
    marked = path.read_bytes()
    at = marked.index(bytes([1]) + bytes(23))  # the wrapper of the fixture
    elf = ElfFile.parse(marked[:at] + b"HIPK" + marked[at + 4 :], "a.so")
    assert offload.is_split(elf)
    assert offload.read_bundles(elf) == ()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 9000))
def test_damaged_sections_never_crash_the_reader(whole: bytes, noise: bytes, at: int) -> None:
    data = bytearray(whole)
    at = data.index(offload._MAGIC) + at
    data[at : at + len(noise)] = noise
    with contextlib.suppress(RocmWheelsError):
        offload.read_bundles(ElfFile.parse(bytes(data), "x"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    parts = [TWO, compressed(TWO, 2), compressed(TWO, 1, "zlib")]
    return make_library(folder, "a.so", bundles=parts).read_bytes()
