import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocm_wheels.errors import BrokenArchive, BrokenWheel, NoSpace, RocmWheelsError
from rocm_wheels.wheel import WheelArchive, WheelWriter
from rocm_wheels.wheel.codec import Packed, pack_file
from rocm_wheels.wheel.record import digest
from tests.wheel_fixtures import make_wheel

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, files={"demo/__init__.py": b"value = 1\n", "demo/data": CONTENT, "demo/empty": b""})


def _edit(wheel: Path, change: Callable[[bytearray], object]) -> Path:
    data = bytearray(wheel.read_bytes())
    change(data)
    wheel.write_bytes(data)
    return wheel


def _rezip(wheel: Path, *extra: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(wheel, "a") as archive:
        for name, content in extra:
            archive.writestr(name, content)
    return wheel


def _refused(wheel: Path) -> str:
    with pytest.raises(BrokenArchive) as caught, WheelArchive.open(wheel) as archive:
        for member in archive.members:
            archive.read(member)
    return caught.value.message


def test_members_are_read_with_their_content(wheel: Path) -> None:
    with WheelArchive.open(wheel) as archive:
        assert archive.read("demo/data") == CONTENT
        assert archive.read("demo/empty") == b""
        assert archive.peek(archive.member("demo/data"), 4) == CONTENT[:4]
        assert {row.path for row in archive.record} == {m.name for m in archive.members}


def test_a_truncated_archive_is_refused(wheel: Path) -> None:
    _edit(wheel, lambda data: data.__delitem__(slice(-30, None)))
    assert "end of central directory" in _refused(wheel)


def test_an_empty_file_is_refused(wheel: Path) -> None:
    wheel.write_bytes(b"")
    assert "cannot be read" in _refused(wheel)


def test_bytes_before_the_first_member_are_refused(wheel: Path) -> None:
    wheel.write_bytes(b"#!" + wheel.read_bytes())
    _refused(wheel)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "demo\\evil", "demo//x", "demo/./x", "C:/x"])
def test_a_name_that_leaves_the_wheel_is_refused(wheel: Path, name: str) -> None:
    assert repr(name) in _refused(_rezip(wheel, (name, b"x")))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(wheel: Path) -> None:
    assert "demo/data is there twice" in _refused(_rezip(wheel, ("demo/data", b"other")))


def test_an_encrypted_member_is_refused(wheel: Path) -> None:
    def encrypt(data: bytearray) -> None:
        data[6] |= 1
        data[data.index(b"PK\1\2") + 8] |= 1

    assert "is encrypted" in _refused(_edit(wheel, encrypt))


def test_a_size_that_differs_between_the_headers_is_refused(wheel: Path) -> None:
    assert "differ between local header and central directory" in _refused(
        _edit(wheel, lambda data: struct.pack_into("<I", data, 22, 11))
    )


def test_content_that_fails_its_crc_is_named_with_its_offset(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"demo/data": CONTENT}, compression=zipfile.ZIP_STORED)
    message = _refused(_edit(wheel, lambda data: data.__setitem__(data.index(CONTENT[:64]), 255)))
    assert "member demo/data at 0x" in message
    assert "fails its CRC" in message


def test_a_zip_bomb_is_refused_before_it_is_inflated(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"demo/zeros": bytes(1 << 20)})

    def inflate(data: bytearray) -> None:
        for magic, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
            struct.pack_into("<I", data, data.index(magic) + place, 0x7FFFFFFF)

    assert "a zip bomb" in _refused(_edit(wheel, inflate))


def test_a_deflate_stream_without_its_last_block_is_refused(tmp_path: Path) -> None:
    body = zlib.compressobj(6, zlib.DEFLATED, -15)
    raw = body.compress(CONTENT) + body.flush(zlib.Z_FULL_FLUSH)
    wheel = make_wheel(tmp_path, files={"demo/data": raw}, compression=zipfile.ZIP_STORED)

    def pretend(data: bytearray) -> None:
        for magic, method, sizes in ((b"PK\3\4", 8, 14), (b"PK\1\2", 10, 16)):
            at = data.index(magic)
            struct.pack_into("<H", data, at + method, 8)
            struct.pack_into("<III", data, at + sizes, zlib.crc32(CONTENT), len(raw), len(CONTENT))

    assert "has no end" in _refused(_edit(wheel, pretend))


def test_a_zip64_block_beside_ordinary_sizes_is_refused(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header that pip installs and uv refuses: pypa/wheel#692."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 512)
    bad = tmp_path / "bad" / wheel.name
    bad.parent.mkdir()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(bad, "w") as new:
        for info in old.infolist():
            with new.open(info.filename, "w", force_zip64=True) as out:
                out.write(old.read(info))
    with WheelArchive.open(bad) as archive:
        assert archive.read("demo/data") == CONTENT
    data = bytearray(bad.read_bytes())
    struct.pack_into("<II", data, 18, 10, 10)  # the sizes of the first local header, while its block stays
    bad.write_bytes(data)
    assert "its ZIP64 block has" in _refused(bad)


def test_a_file_name_that_is_no_wheel_name_is_refused(wheel: Path) -> None:
    with pytest.raises(BrokenWheel):
        WheelArchive.open(wheel.rename(wheel.with_name("demo.whl")))


def _copy(wheel: Path, dest: Path) -> Path:
    with WheelArchive.open(wheel) as archive, WheelWriter(dest / wheel.name) as writer:
        rows = {row.path: row for row in archive.record}
        for member in archive.members:
            if not member.name.endswith("/RECORD"):
                writer.copy(archive, member, rows[member.name])
    return dest / wheel.name


def test_a_copy_has_the_same_content_a_right_record_and_is_the_same_every_time(wheel: Path, tmp_path: Path) -> None:
    first, second = _copy(wheel, tmp_path / "a"), _copy(wheel, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[-1].endswith("/RECORD")
        assert archive.read("demo/data") == CONTENT


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    dest = tmp_path / "out"
    target = _copy(wheel, dest)
    before = target.read_bytes()
    with pytest.raises(RuntimeError), WheelWriter(target) as writer:
        writer.add("demo/x", b"x")
        raise RuntimeError
    assert [p.name for p in dest.iterdir()] == [target.name]
    assert target.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_destination_is_an_error_of_its_own(wheel: Path, tmp_path: Path) -> None:
    dest = tmp_path / "closed"
    dest.mkdir(mode=0o555)
    with pytest.raises(NoSpace):
        WheelWriter(dest / wheel.name)


def test_a_file_is_deflated_to_what_zlib_inflates(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(CONTENT * 400)
    packed = pack_file(source, tmp_path / "deflated")
    inflater = zlib.decompressobj(-15)
    assert inflater.decompress((tmp_path / "deflated").read_bytes()) == source.read_bytes()
    assert inflater.eof
    assert packed.crc == zlib.crc32(source.read_bytes())


def test_the_first_bytes_are_found_behind_any_number_of_empty_blocks(tmp_path: Path) -> None:
    stream = zlib.compressobj(wbits=-15)
    packed = b"\0\0\0\xff\xff" * 1000 + stream.compress(CONTENT) + stream.flush()
    member = Packed(8, zlib.crc32(CONTENT), len(CONTENT), len(packed), digest(CONTENT), (packed,))
    with WheelWriter(tmp_path / "demo-1.0-py3-none-any.whl") as writer:
        writer.add_packed("demo/data", member)
        writer.add("demo-1.0.dist-info/WHEEL", b"Wheel-Version: 1.0\n")
    with WheelArchive.open(writer.path) as archive:
        assert archive.peek(archive.member("demo/data"), 8) == CONTENT[:8]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 400))
def test_a_damaged_archive_is_read_or_refused_but_never_crashes(
    tmp_path: Path, flips: list[tuple[int, int]], cut: int
) -> None:
    wheel = make_wheel(tmp_path / "fuzz", files={"demo/a": CONTENT, "demo/b": b"b" * 50})
    data = bytearray(wheel.read_bytes())
    for place, value in flips:
        data[place % len(data)] = value
    wheel.write_bytes(data[: len(data) - (cut if cut < 40 else 0)])
    try:
        with WheelArchive.open(wheel) as archive:
            for member in archive.members:
                archive.read(member)
    except RocmWheelsError:
        pass
