"""Inflating many members at once, and what sinks keep."""

import hashlib
import os
import random
import struct
import zipfile
from pathlib import Path

import pytest

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.reader import PT_DYNAMIC, PT_LOAD
from rocm_wheels.elf.tables import Tables
from rocm_wheels.errors import BrokenArchive, BrokenElf
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.inflate import Inflated, Whole, beside, inflate_each
from rocm_wheels.wheel.record import encode_digest
from tests.wheel_fixtures import make_wheel

RANDOM = random.Random(7)
FILES = {f"demo/{n}": RANDOM.randbytes(n // 2) + bytes(n - n // 2) for n in (0, 1, 63, 70_000, 5 << 20)}


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_every_member_comes_whole_and_hashed_the_largest_first(tmp_path: Path, compression: int) -> None:
    wheel = make_wheel(tmp_path, files=FILES, compression=compression)

    def visit(inflated: Inflated) -> tuple[str, str, bytes]:
        return inflated.member.name, inflated.digest, bytes(inflated.data)

    with WheelArchive.open(wheel) as archive:
        members = [m for m in archive.members if m.name in FILES]
        found = list(
            inflate_each(archive, members, visit, sink=lambda m, _: Whole(m.size), hashed=True, memory=1 << 20)
        )
    assert [name for name, _, _ in found] == sorted(FILES, key=lambda n: -len(FILES[n]))
    for name, digest, data in found:
        assert data == FILES[name]
        assert digest == encode_digest(hashlib.sha256(FILES[name]).digest())


def test_a_huge_member_passes_through_a_file_that_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocm_wheels.wheel.inflate._IN_MEMORY", 1000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sink = Whole(3000)
    for offset in range(0, 3000, 1000):
        sink.write(offset, bytes([offset // 1000]) * 1000)
    assert bytes(sink.data) == b"\0" * 1000 + b"\1" * 1000 + b"\2" * 1000
    assert not os.listdir(tmp_path)  # noqa: PTH208


def test_a_member_whose_bytes_are_damaged_is_named(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"demo/a": RANDOM.randbytes(1000), "demo/b": b"b" * 100})
    with WheelArchive.open(wheel) as archive:
        place = archive.member("demo/a").offset + 500
    data = bytearray(wheel.read_bytes())
    data[place] ^= 1
    wheel.write_bytes(data)
    with WheelArchive.open(wheel) as archive, pytest.raises(BrokenArchive, match="demo/a"):
        list(inflate_each(archive, archive.members, lambda inflated: inflated.member.name))


def test_what_a_helping_thread_raises_is_raised_where_it_was_started() -> None:
    def fail(piece: int) -> None:
        raise ValueError(piece)

    with pytest.raises(ValueError, match="0"), beside(fail) as put:
        for number in range(100):
            put(number)


def _elf(size: int, strings: int, dynamic: int, names: bytes) -> bytes:
    """A file of ``size`` bytes with a dynamic section that needs the one library in its string table."""
    data = bytearray(size)
    header = (b"\x7fELF\2\1\1" + bytes(9), 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    struct.pack_into("<16sHHIQQQIHHHHHH", data, 0, *header)
    struct.pack_into("<IIQQQQQQ", data, 64, PT_LOAD, 5, 0, 0, 0, size, size, 4096)
    struct.pack_into("<IIQQQQQQ", data, 120, PT_DYNAMIC, 6, dynamic, dynamic, 0, 64, 64, 8)
    struct.pack_into("<qQqQqQqQ", data, dynamic, 1, 1, 5, strings, 10, len(names), 0, 0)
    data[strings : strings + len(names)] = names
    return bytes(data)


@pytest.mark.parametrize("strings", [300, 250_000, 900_000])
def test_tables_are_found_wherever_they_lie_and_the_rest_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, strings: int
) -> None:
    monkeypatch.setattr("rocm_wheels.elf.tables._BEGINNING", 8192)
    monkeypatch.setattr("rocm_wheels.elf.tables._NEAR", 0)
    data = _elf(1_000_000, strings, 500_000, b"\0libneeded.so.1\0")
    passes = []

    def pour(sink: Tables, stop: int = 0) -> None:
        passes.append(sink)
        for offset in range(0, len(data), 65536):
            sink.write(offset, data[offset : offset + 65536])

    sink = Tables(len(data))
    pour(sink)
    assert sink.read("x.so", lambda elf: elf.needed, pour) == ("libneeded.so.1",)
    assert len(passes) == (1 if strings == 300 else 2)
    sink.trim()
    assert sink.memory < 1000
    assert ElfFile.parse(sink.data, "x.so").needed == ("libneeded.so.1",)


def test_a_range_that_was_not_kept_is_never_read_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_wheels.elf.tables._BEGINNING", 8192)
    monkeypatch.setattr("rocm_wheels.elf.tables._NEAR", 0)
    sink = Tables(1 << 20)
    sink.write(0, _elf(1 << 20, 300, 500_000, b"\0x\0")[:65536])
    again: list[Tables] = []
    with pytest.raises(BrokenElf, match="places"):
        sink.read("x.so", lambda elf: [elf.bytes_at(n << 16, 8) for n in range(1, 16)], lambda s, stop: again.append(s))
    assert len(again) == 8
