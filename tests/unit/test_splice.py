"""Splicing deflate streams: every inflater that is to be had must accept the result."""

import hashlib
import itertools
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import deflate
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from isal import isal_zlib
from zlib_ng import zlib_ng

from rocm_wheels.errors import BrokenArchive, BrokenWheel
from rocm_wheels.wheel import Member, WheelArchive
from rocm_wheels.wheel.blocks import can_walk, walk
from rocm_wheels.wheel.change import Change
from rocm_wheels.wheel.codec import Packed
from rocm_wheels.wheel.record import digest, encode_digest
from rocm_wheels.wheel.splice import _EMPTY_DYNAMIC, _EMPTY_FIXED, Unspliceable, splice
from tests.wheel_fixtures import make_wheel


class Archive:
    """As much of an archive as splicing needs: bytes with a member in them."""

    path = Path("demo.whl")

    def __init__(self, stream: bytes, content: bytes) -> None:
        self.data = b"header" + stream + b"what follows"
        self.member = Member("demo/a", 8, zlib.crc32(content), len(stream), len(content), 0, 0, 0, 6)

    def read_at(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def splice(self, changes: list[Change], tail: bytes = b"", recorded: str = "") -> Packed:
        return splice(self, self.member, changes, tail=tail, recorded=recorded)  # type: ignore[arg-type]

    def stream(self, packed: Packed) -> bytes:
        found = b""
        for part in packed.parts:
            assert not isinstance(part, Path)
            found += part if isinstance(part, bytes) else self.read_at(part.offset, part.size)
        assert len(found) == packed.stored
        return found


def _content(seed: random.Random, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        kind, length = seed.randrange(4), seed.randrange(1, 50_000)
        if kind == 0:
            data += seed.randbytes(length)
        elif kind == 1:
            data += bytes(length)
        elif kind == 2:
            data += b"".join(b"%d words and words " % seed.randrange(999) for _ in range(length // 20))
        elif data:
            start = seed.randrange(len(data))
            data += data[start : start + length]
    return bytes(data[:size])


def _flushed(content: bytes, seed: random.Random) -> bytes:
    """A stream with stored, fixed and empty blocks in it."""
    stream = zlib.compressobj(seed.randrange(10), wbits=-15, strategy=seed.randrange(5))
    made: bytes = b""
    for start in range(0, len(content), 70_000):
        made += stream.compress(content[start : start + 70_000])
        made += stream.flush(seed.choice([zlib.Z_NO_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_BLOCK]))
    return made + bytes(stream.flush())


ENCODERS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "zlib": lambda content, seed: zlib.compress(content, seed.randrange(10), -15),
    "flushed": _flushed,
    "isal": lambda content, seed: isal_zlib.compress(content, seed.randrange(4), -15),
    "zlib-ng": lambda content, seed: zlib_ng.compress(content, seed.randrange(10), -15),
    "libdeflate": lambda content, seed: bytes(deflate.deflate_compress(content, seed.randrange(1, 13))),
}


def inflated_by_all(stream: bytes, size: int) -> bytes:
    """The content, which zlib, zlib-ng, isal and libdeflate must agree on, each at the end of its final block."""
    found: list[bytes] = []
    for library in (zlib, zlib_ng, isal_zlib):
        inflater = library.decompressobj(-15)
        found.append(inflater.decompress(stream))
        assert inflater.eof
        assert not inflater.unused_data
    found.append(bytes(deflate.deflate_decompress(stream, size)) if size else b"")
    assert len(set(found)) == 1
    return found[0]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 1 << 32),
    st.sampled_from(sorted(ENCODERS)),
    st.integers(1, 400_000),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 2000)), max_size=5),
    st.integers(0, 3000),
)
def test_any_change_of_any_stream_gives_one_that_all_inflaters_read(
    number: int, encoder: str, size: int, places: list[tuple[float, int]], more: int
) -> None:
    seed = random.Random(number)
    content = _content(seed, size)
    wanted, changes, position = bytearray(content), [], 0
    for share, length in places:
        offset = position + int(share * (size - position))
        data = seed.randbytes(min(length, size - offset))
        if data:
            wanted[offset : offset + len(data)] = data
            changes.append(Change(offset, data))
            position = offset + len(data)
    tail = seed.randbytes(more)
    archive = Archive(ENCODERS[encoder](content, seed), content)
    packed = archive.splice(changes, tail, recorded=digest(content))
    wanted += tail
    assert inflated_by_all(archive.stream(packed), len(wanted)) == wanted
    assert (packed.crc, packed.size) == (zlib.crc32(wanted), len(wanted))
    assert packed.digest == encode_digest(hashlib.sha256(wanted).digest())


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
def test_a_small_change_of_a_big_stream_replaces_little_of_it(encoder: str) -> None:
    seed = random.Random(3)
    content = b"".join(b"%d words and words " % seed.randrange(1 << 30) for _ in range(300_000))
    archive = Archive(ENCODERS[encoder](content, random.Random(6)), content)
    packed = archive.splice([Change(3_000_000, b"x" * 100)])
    new = sum(len(part) for part in packed.parts if isinstance(part, bytes))
    ends = [p.bit for p in walk(lambda at, size: archive.read_at(6 + at, size), archive.member.compressed_size, "a")]
    bits = [0, *(bit for bit in ends if bit is not None)]
    longest = max(after - before for before, after in itertools.pairwise(bits))
    assert new < 2 * longest / 8 + 100_000


def test_no_change_gives_the_stream_as_it_was() -> None:
    content = b"words " * 100_000
    archive = Archive(zlib.compress(content, 6, -15), content)
    packed = archive.splice([])
    assert archive.stream(packed) == archive.data[6:-12]


def _bytes(bits: int, size: int) -> bytes:
    return bits.to_bytes((size + 7) // 8, "little")


@pytest.mark.parametrize("block", [_EMPTY_FIXED, _EMPTY_DYNAMIC])
def test_a_stream_without_its_final_block_passes_no_inflater_of_these_tests(block: tuple[int, int]) -> None:
    with pytest.raises(AssertionError):
        inflated_by_all(_bytes(*block), 1)
    with pytest.raises(deflate.DeflateError):
        deflate.deflate_decompress(_bytes(*block), 1)


@pytest.mark.parametrize("block", [_EMPTY_FIXED, _EMPTY_DYNAMIC])
def test_filler_blocks_have_complete_codes_and_no_content(block: tuple[int, int]) -> None:
    bits, size = block
    one = int.from_bytes(zlib.compress(b"a", 9, -15), "little")  # a fixed block of 3 + 8 + 7 bits
    assert inflated_by_all(_bytes(bits | one << size, size + 18), 1) == b"a"


def test_an_incomplete_distance_code_is_noticed() -> None:
    bits = (_EMPTY_DYNAMIC[0] & ~(0b11111 << 8)) | 1  # one distance code instead of two
    with pytest.raises((deflate.DeflateError, AssertionError, zlib.error)):
        inflated_by_all(_bytes(bits, _EMPTY_DYNAMIC[1]), 1)


def test_another_content_than_recorded_is_not_blessed_with_a_new_hash() -> None:
    content = b"words " * 1000
    archive = Archive(zlib.compress(content, 6, -15), content)
    with pytest.raises(BrokenWheel, match="vouches"):
        archive.splice([Change(5, b"x")], recorded=digest(b"other"))


@pytest.mark.parametrize("cut", ["end", "middle", "more"])
def test_a_damaged_stream_is_an_error_that_names_the_member(cut: str) -> None:
    content = random.Random(1).randbytes(50_000) + b"words " * 50_000
    stream = zlib.compress(content, 6, -15)
    bad = {"end": stream[:-1], "middle": stream[:30_000] + b"\xff\xff\xff" + stream[30_003:], "more": stream + b"x"}[
        cut
    ]
    with pytest.raises(BrokenArchive, match="demo/a"):
        Archive(bad, content).splice([Change(5, b"x")])


def test_a_stored_member_is_left_to_deflate(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"demo/a": b"a" * 1000}, compression=zipfile.ZIP_STORED)
    with WheelArchive.open(wheel) as archive, pytest.raises(Unspliceable):
        splice(archive, archive.member("demo/a"), [])


def test_this_build_of_zlib_ng_shows_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_walk()
    monkeypatch.setattr("rocm_wheels.wheel.blocks._library", lambda: None)
    with pytest.raises(Unspliceable):
        Archive(zlib.compress(b"words", 6, -15), b"words").splice([])


def test_a_block_that_is_too_long_is_left_to_deflate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocm_wheels.wheel.splice._MOST_HELD", 1 << 20)
    content = bytes(3 << 20)
    with pytest.raises(Unspliceable):
        Archive(zlib.compress(content, 6, -15), content).splice([Change(5, b"x")])
