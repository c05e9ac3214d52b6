"""Writes a wheel: members in the order given, unchanged ones as the compressed bytes that they were.

The same members give the same bytes. RECORD comes last and the file is renamed in when it is whole.
"""

from __future__ import annotations

import os
import stat
import struct
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from isal import isal_zlib

from rocm_wheels.errors import BrokenWheel, NoSpace
from rocm_wheels.wheel.archive import DEFLATED, STORED, Member, WheelArchive
from rocm_wheels.wheel.record import Row, render_record, row

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_FULL32 = 0xFFFFFFFF
_FULL16 = 0xFFFF
_VERSION, _VERSION64 = 20, 45
_UNIX = 3 << 8
_UTF8 = 0x800
_LEVEL = 2  # isal's: within a few per cent of zlib 6 at several times its speed


class WheelWriter:
    """Writes the wheel ``path``; a context manager that leaves nothing behind when its block fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._file: BinaryIO = self._beside.open("wb")
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
            self._file.close()
            self._beside.unlink(missing_ok=True)

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
        self._write(moved, archive.raw(member))
        self._rows.append(Row(name, recorded.digest, recorded.size))

    def add(self, name: str, content: bytes, *, mode: int = 0o644) -> None:
        """Deflate ``content`` into member ``name``; ``mode`` gives the permission bits."""
        self._add(name, content, mode)
        self._rows.append(row(name, content))

    def _add(self, name: str, content: bytes, mode: int) -> None:
        packed = isal_zlib.compress(content, _LEVEL, -15)
        method = DEFLATED if len(packed) < len(content) else STORED
        body = packed if method == DEFLATED else content
        crc = zlib.crc32(content) if len(content) < 1024 else isal_zlib.crc32(content)
        full_mode = stat.S_IFREG | stat.S_IMODE(mode)
        self._write(
            Member(name, method, crc, len(body), len(content), full_mode, self._stamp, self._file.tell(), 0), body
        )

    def _write(self, member: Member, body: bytes) -> None:
        self._members.append(member)
        try:
            self._file.write(_local_header(member))
            self._file.write(body)
        except OSError as error:
            raise _no_space(self._beside, error) from error

    def close(self) -> None:
        """Write RECORD and the central directory, and rename the file in.

        Raises :class:`BrokenWheel` for a wheel without a .dist-info directory and :class:`NoSpace`.
        """
        try:
            self._finish()
        except OSError as error:
            self._beside.unlink(missing_ok=True)
            raise _no_space(self._beside, error) from error
        except BaseException:
            self._beside.unlink(missing_ok=True)
            raise
        finally:
            self._file.close()
        self._beside.replace(self.path)

    def _finish(self) -> None:
        info = {m.name.partition("/")[0] for m in self._members if m.name.partition("/")[0].endswith(".dist-info")}
        if len(info) != 1:
            raise BrokenWheel(f"{self.path.name} would have {len(info)} .dist-info directories, one is needed")
        record = f"{info.pop()}/RECORD"
        self._add(record, render_record(self._rows, record), 0o644)
        start = self._file.tell()
        for member in self._members:
            self._file.write(_central_entry(member))
        self._file.write(_end(len(self._members), start, self._file.tell() - start))
        self._file.flush()
        os.fsync(self._file.fileno())


def _no_space(path: Path, error: OSError) -> NoSpace:
    return NoSpace(f"{path} cannot be written: {error.strerror}", remedy="make room, or choose another --dest")


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
