"""What is fuzzed: readers that take bytes from anybody.

``python -m tests.slow.fuzz_targets NAME CORPUS`` asks atheris.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.anatomy import Unpatchable, anatomy
from rocm_wheels.elf.offload import embedded_bundles, inflated, read_bundles
from rocm_wheels.elf.patch import Edit, patches
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.wheel import WheelArchive
from tests.elf_fixtures import bundle, compressed, make_library
from tests.wheel_fixtures import make_wheel

_NAME = "demo-1.0-cp311-cp311-linux_x86_64.whl"


def read_archive(data: bytes) -> None:
    """Every member of a wheel, its headers and RECORD."""
    with tempfile.TemporaryDirectory() as folder, suppress(RocmWheelsError):
        path = Path(folder) / _NAME
        path.write_bytes(data)
        with WheelArchive.open(path) as archive:
            for member in archive.members:
                for _ in archive.chunks(member):
                    pass
            assert archive.record is not None
            assert archive.metadata is not None


def read_elf(data: bytes) -> None:
    """The loader's tables of a library, and an edit of its search path."""
    with suppress(RocmWheelsError):
        elf = ElfFile.parse(data, "fuzz.so")
        for read in (lambda: elf.needed, lambda: elf.verneed, lambda: elf.verdef, lambda: elf.sections):
            with suppress(RocmWheelsError):
                read()
        with suppress(Unpatchable):
            patches(anatomy(elf), Edit(rpath="$ORIGIN/" + "x" * 80, clear_stack=True), "fuzz.so")


def read_offload(data: bytes) -> None:
    """The bundles of device code, inflated where they are packed."""
    with suppress(RocmWheelsError):
        elf = ElfFile.parse(data, "fuzz.so")
        for found in (*read_bundles(elf), *embedded_bundles(elf)):
            with suppress(RocmWheelsError):
                inflated(elf, found)


TARGETS: dict[str, Callable[[bytes], None]] = {"archive": read_archive, "elf": read_elf, "offload": read_offload}


def seed(name: str, folder: Path) -> bytes:
    """A sound input to begin with."""
    plain = bundle(["gfx1030", "gfx90a:xnack-"], payload=b"\x7fELF" + bytes(200))
    versions = {"hip_5.0": "one"}
    code = "int one(void) { return 1; }"
    library = make_library(
        folder, "libseed.so", code=code, bundles=[plain, compressed(plain, 3)], rpath="$ORIGIN/a:/b", versions=versions
    )
    if name != "archive":
        return library.read_bytes()
    return make_wheel(folder, files={"demo/libseed.so": library.read_bytes()}).read_bytes()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """``data`` with a few fields overwritten, mostly in its headers and at its end, where the tables lie."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        size = chance.choice((1, 2, 4, 8))
        at = chance.choice((0, 0, max(len(found) - 2048, 0))) + chance.randrange(2048)
        at = min(at if chance.random() < 0.7 else chance.randrange(len(found)), len(found) - size)
        value = chance.choice(
            (0, 1, 0x7F, 0xFF, 1 << (8 * size - 1), (1 << 8 * size) - 1, chance.getrandbits(8 * size))
        )
        found[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if chance.random() < 0.05:
        del found[chance.randrange(len(found)) :]
    return bytes(found)


def _guided(arguments: list[str]) -> None:
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    target = TARGETS[arguments[0]]
    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *arguments[1:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    _guided(sys.argv[1:])
