"""What fuzzing found once: numbers in damaged files that Python or the operating system cannot take."""

import struct
from pathlib import Path

import pytest

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.offload import embedded_bundles, inflated, read_bundles
from rocm_wheels.errors import BrokenBundle
from tests.elf_fixtures import bundle, compressed, make_library


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_bundle_that_declares_an_absurd_size_is_refused(tmp_path: Path, size: int) -> None:
    packed = bytearray(compressed(bundle(["gfx1030"], payload=b"\x7fELF" + bytes(200)), 3))
    packed[16:24] = struct.pack("<Q", size)
    library = make_library(tmp_path, "libk.so", bundles=[bytes(packed)])
    elf = ElfFile.parse(library.read_bytes(), "libk.so")
    with pytest.raises(BrokenBundle, match="damaged"):
        for found in (*read_bundles(elf), *embedded_bundles(elf)):
            inflated(elf, found)
