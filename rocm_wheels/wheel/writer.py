"""Writes a wheel: members in the order given, unchanged ones as the compressed bytes that they were.

The same members give the same bytes. RECORD comes last and the file is renamed in when it is whole.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from rocm_wheels.errors import BrokenArchive, BrokenWheel
from rocm_wheels.wheel.archive import Member, WheelArchive
from rocm_wheels.wheel.codec import Extent, Packed, Part, no_space, pack
from rocm_wheels.wheel.record import Row, render_record

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_FULL32 = 0xFFFFFFFF
_FULL16 = 0xFFFF
_VERSION, _VERSION64 = 20, 45
_UNIX = 3 << 8
_UTF8 = 0x800
_IN_KERNEL = 256 << 10  # extents from this size on are copied by the kernel


class WheelWriter:
    """Writes the wheel ``path``; a context manager that leaves nothing behind when its block fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self._beside.open("wb")
        except OSError as error:
            raise no_space(self._beside, error) from error
        self._members: list[Member] = []
        self._rows: list[Row] = []
        self._stamp = _dos_time()

    def __enter__(self) -> WheelWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._discard()

    def copy(self, archive: WheelArchive, member: Member, recorded: Row, *, name: str = "") -> None:
        """Take ``member`` over as its compressed bytes; ``recorded`` is its row of the old RECORD.

        ``name`` renames it. Its mode and date stay.
        """
        name = name or member.name
        moved = Member(
            name,
            member.method,
            member.crc,
            member.compressed_size,
            member.size,
            member.mode,
            member.date_time,
            self._file.tell(),
            0,
        )
        self._write(moved, (Extent(archive, member.offset, member.compressed_size),))
        self._rows.append(Row(name, recorded.digest, recorded.size))

    def add(self, name: str, content: bytes, *, mode: int = 0o644) -> None:
        """Deflate ``content`` into member ``name``; ``mode`` gives the permission bits."""
        self.add_packed(name, pack(content), mode=mode)

    def add_packed(self, name: str, packed: Packed, *, mode: int = 0o644) -> None:
        """Take content that was deflated before, by :mod:`rocm_wheels.wheel.codec` or ``splice``."""
        self._add(name, packed, mode)
        self._rows.append(Row(name, packed.digest, packed.size))

    def _add(self, name: str, packed: Packed, mode: int) -> None:
        full_mode = stat.S_IFREG | stat.S_IMODE(mode)
        place = self._file.tell()
        self._write(
            Member(name, packed.method, packed.crc, packed.stored, packed.size, full_mode, self._stamp, place, 0),
            packed.parts,
        )

    def _write(self, member: Member, parts: Iterable[Part]) -> None:
        self._members.append(member)
        try:
            self._file.write(_local_header(member))
            for part in parts:
                self._put(part)
        except OSError as error:
            raise no_space(self._beside, error) from error

    def _put(self, part: Part) -> None:
        if isinstance(part, bytes):
            self._file.write(part)
        elif isinstance(part, Path):
            with part.open("rb") as source:
                self._copy(source.fileno(), 0, part.stat().st_size)
        elif part.size < _IN_KERNEL:
            self._file.write(part.archive.read_at(part.offset, part.size))
        else:
            self._copy(part.archive.fileno(), part.offset, part.size)

    def _copy(self, source: int, offset: int, size: int) -> None:
        """Bytes of an open file, copied inside the kernel."""
        self._file.flush()
        end = offset + size
        while offset < end:  # not copy_file_range: it refuses to cross file systems
            done = os.sendfile(self._file.fileno(), source, offset, end - offset)
            if not done:
                raise BrokenArchive(f"a file became shorter while {self.path.name} was written from it")
            offset += done

    def close(self) -> None:
        """Write RECORD and the central directory, and rename the file in.

        Raises :class:`BrokenWheel` for a wheel without a .dist-info directory and :class:`NoSpace`.
        """
        try:
            self._finish()
            self._file.close()
        except OSError as error:
            self._discard()
            raise no_space(self._beside, error) from error
        except BaseException:
            self._discard()
            raise
        self._beside.replace(self.path)

    def _discard(self) -> None:
        self._beside.unlink(missing_ok=True)
        with suppress(OSError):  # on a full disk closing writes what is still buffered, and fails again
            self._file.close()

    def _finish(self) -> None:
        info = {m.name.partition("/")[0] for m in self._members if m.name.partition("/")[0].endswith(".dist-info")}
        if len(info) != 1:
            raise BrokenWheel(f"{self.path.name} would have {len(info)} .dist-info directories, one is needed")
        record = f"{info.pop()}/RECORD"
        self._add(record, pack(render_record(self._rows, record)), 0o644)
        start = self._file.tell()
        for member in self._members:
            self._file.write(_central_entry(member))
        self._file.write(_end(len(self._members), start, self._file.tell() - start))


def _dos_time() -> int:
    """SOURCE_DATE_EPOCH, or zip's earliest date, as the archive stores it."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    when = time.gmtime(max(epoch, 315532800))
    date = (when.tm_year - 1980) << 9 | when.tm_mon << 5 | when.tm_mday
    return date << 16 | when.tm_hour << 11 | when.tm_min << 5 | when.tm_sec // 2


def _zip64_block(sizes: tuple[int, ...]) -> bytes:
    big = [size for size in sizes if size >= _FULL32]
    return struct.pack(f"<HH{len(big)}Q", 1, 8 * len(big), *big) if big else b""


def _short(size: int) -> int:
    return min(size, _FULL32)


def _name(member: Member) -> tuple[bytes, int]:
    try:
        return member.name.encode("ascii"), 0
    except UnicodeEncodeError:
        return member.name.encode("utf-8"), _UTF8


def _local_header(member: Member) -> bytes:
    name, flags = _name(member)
    extra = _zip64_block((member.size, member.compressed_size))
    fields = (
        b"PK\3\4",
        _VERSION64 if extra else _VERSION,
        flags,
        member.method,
        member.date_time & _FULL16,
        member.date_time >> 16,
        member.crc,
        _short(member.compressed_size),
        _short(member.size),
        len(name),
        len(extra),
    )
    return _LOCAL.pack(*fields) + name + extra


def _central_entry(member: Member) -> bytes:
    name, flags = _name(member)
    extra = _zip64_block((member.size, member.compressed_size, member.header))
    version = _VERSION64 if extra else _VERSION
    fields = (
        b"PK\1\2",
        _UNIX | version,
        version,
        flags,
        member.method,
        member.date_time & _FULL16,
        member.date_time >> 16,
        member.crc,
        _short(member.compressed_size),
        _short(member.size),
        len(name),
        len(extra),
        0,
        0,
        0,
        member.mode << 16,
        _short(member.header),
    )
    return _CENTRAL.pack(*fields) + name + extra


def _end(count: int, start: int, size: int) -> bytes:
    wide = count >= _FULL16 or start >= _FULL32 or size >= _FULL32
    tail = struct.pack(
        "<4s4H2IH", b"PK\5\6", 0, 0, min(count, _FULL16), min(count, _FULL16), _short(size), _short(start), 0
    )
    if not wide:
        return tail
    record = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, _VERSION64, _VERSION64, 0, 0, count, count, size, start)
    return record + struct.pack("<4sIQI", b"PK\6\7", 0, start + size, 1) + tail
