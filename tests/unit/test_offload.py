from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_wheels.elf import ElfFile, offload
from rocm_wheels.errors import BrokenBundle, RocmWheelsError
from tests.elf_fixtures import bundle, compressed, make_library, section_bytes

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


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_sections_never_crash_the_reader(noise: bytes, at: int) -> None:
    data = bytearray(section_bytes([TWO, compressed(TWO, 2)]))
    data[at : at + len(noise)] = noise
    with contextlib.suppress(RocmWheelsError):
        offload._read_bundle(memoryview(data), 0, "x")
