"""Reads a wheel's zip archive over a memory map, strictly.

Central directory and local headers must agree, ZIP64 blocks must hold exactly the sizes that need them, and no name may
leave the wheel: tools that are content with the central directory install archives that others refuse
(pypa/wheel#692, pytorch#189748, astral-sh/uv#19440). Layout: PKWARE APPNOTE 4.3.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from isal import igzip_lib, isal_zlib
from packaging.tags import Tag
from packaging.utils import BuildTag, InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from rocm_wheels.errors import BrokenArchive, BrokenWheel
from rocm_wheels.wheel.record import Row, parse_record

STORED, DEFLATED = 0, 8
_InflateError: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # its stub says: an instance

_EOCD = struct.Struct("<4s4H2IH")
_EOCD64_LOCATOR = struct.Struct("<4sIQI")
_EOCD64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_FULL32 = 0xFFFFFFFF
_FULL16 = 0xFFFF
_ENCRYPTED = 0x1
_DESCRIPTOR = 0x8
_UTF8 = 0x800
_ZIP64 = 1

# Deflate cannot exceed 1032:1; big members of real ROCm wheels stay below 30:1, a bomb is far beyond.
_MOST_RATIO = 1032
_BIG = 256 << 20
_MOST_RATIO_BIG = 200
_TAKE = 128 << 10  # compressed bytes read at once, and content given at once: small enough for the cache
_GIVE = 1 << 20
_NO_NAMES = frozenset(("", ".", ".."))
_BLOCK_HEADER = 1024  # more than the codes of a deflate block can take
_MOST_MEMBERS = 1_000_000


@dataclass(frozen=True)
class Member:
    """One file of the archive. ``offset`` is that of its compressed bytes, ``header`` that of its local header."""

    name: str
    method: int
    crc: int
    compressed_size: int
    size: int
    mode: int
    date_time: int
    header: int
    offset: int

    @property
    def is_directory(self) -> bool:
        """An entry that only names a directory; the wheel format has none."""
        return self.name.endswith("/")


class WheelArchive:
    """A wheel opened for reading; a context manager. Members keep the order of the central directory."""

    def __init__(self, path: Path, file: BinaryIO, data: mmap.mmap, members: tuple[Member, ...]) -> None:
        self.path = path
        self.members = members
        self._file = file
        self._data = data
        self._by_name = {member.name: member for member in members}
        self.distribution, self.version, self.build, self.tags = _filename(path.name)

    @classmethod
    def open(cls, path: Path) -> WheelArchive:
        """Map and check the archive at ``path``.

        Raises :class:`BrokenArchive` naming the member and offset, :class:`BrokenWheel` for a wrong file name.
        """
        try:
            file = path.open("rb")
        except OSError as error:
            raise BrokenArchive(f"{path} cannot be read: {error}") from error
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            archive = cls(path, file, data, _Directory(data, path.name).read())
            data.madvise(mmap.MADV_DONTNEED)  # the pages with headers; they would count as memory of this process
        except (OSError, ValueError) as error:
            file.close()
            raise BrokenArchive(f"{path} cannot be read: {error}") from error
        except BaseException:
            file.close()
            raise
        return archive

    def __enter__(self) -> WheelArchive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the map; one that a view from :meth:`raw` still uses goes with that view."""
        self._file.close()
        with suppress(BufferError):
            self._data.close()

    def fileno(self) -> int:
        """Descriptor of the open file, for copying inside the kernel."""
        return self._file.fileno()

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes of the file from ``offset``; unlike the map they do not stay in memory.

        Threads may call it at the same time.
        """
        return os.pread(self._file.fileno(), size, offset)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def member(self, name: str) -> Member:
        """The member called ``name``; raises :class:`BrokenWheel`."""
        try:
            return self._by_name[name]
        except KeyError:
            raise BrokenWheel(f"{self.path.name} has no member {name}") from None

    def raw(self, member: Member) -> memoryview:
        """The member's bytes as they lie in the archive, not copied."""
        return memoryview(self._data)[member.offset : member.offset + member.compressed_size]

    def read(self, member: Member | str) -> bytes:
        """The member's content, checked against its size and CRC; raises :class:`BrokenArchive`."""
        if isinstance(member, str):
            member = self.member(member)
        return b"".join(self.chunks(member))

    def peek(self, member: Member, count: int) -> bytes:
        """The first ``count`` bytes of the member, unchecked; fewer when it is shorter or damaged."""
        raw = self.read_at(member.offset, min(member.compressed_size, count + _BLOCK_HEADER))
        if member.method == STORED:
            return raw[:count]
        found = b""
        with suppress(zlib.error):
            found = zlib.decompressobj(-15).decompress(raw, count)  # for few bytes zlib starts faster than isal
        if len(found) < min(count, member.size):  # empty blocks stand before the content, or it is damaged
            with suppress(BrokenArchive):
                found = next(self.chunks(member), b"")[:count]
        return found

    def chunks(self, member: Member, mark: Callable[[int, int], None] | None = None) -> Iterator[bytes]:
        """The member's content piece by piece; size and CRC are checked when the last one was taken.

        ``mark`` is told after each piece of a deflated member how much content has come of how many packed bytes.
        """
        where = f"{self.path.name}: member {member.name} at {member.offset:#x}"
        size = crc = 0
        for chunk in self._stored(member) if member.method == STORED else self._inflated(member, where, mark):
            size += len(chunk)
            if size > member.size:
                break
            crc = isal_zlib.crc32(chunk, crc)
            yield chunk
        if size != member.size:
            raise BrokenArchive(f"{where} has another size than the {member.size} bytes that it declares")
        if crc != member.crc:
            raise BrokenArchive(f"{where} fails its CRC")

    def _stored(self, member: Member) -> Iterator[bytes]:
        for start in range(0, member.size, _GIVE):
            yield self.read_at(member.offset + start, min(_GIVE, member.size - start))

    def _inflated(self, member: Member, where: str, mark: Callable[[int, int], None] | None) -> Iterator[bytes]:
        stream = isal_zlib.decompressobj(-15)
        position, end = member.offset, member.offset + member.compressed_size
        size = 0
        pending = b""
        while not stream.eof:
            if not pending:
                pending = self.read_at(position, min(_TAKE, end - position))
                position += len(pending)
                if not pending:
                    raise BrokenArchive(f"{where}: its deflate stream has no end")
            try:
                content = stream.decompress(pending, _GIVE)
            except _InflateError as error:
                raise BrokenArchive(f"{where} does not inflate: {error}") from error
            pending = stream.unconsumed_tail
            size += len(content)
            if mark is not None:
                mark(size, position - len(pending) - member.offset)
            if content:
                yield content
        if stream.unused_data or position < end:
            raise BrokenArchive(f"{where}: bytes follow its deflate stream")

    @cached_property
    def dist_info(self) -> str:
        """Name of the .dist-info directory; raises :class:`BrokenWheel` when there is not exactly one."""
        found = {m.name.partition("/")[0] for m in self.members if m.name.partition("/")[0].endswith(".dist-info")}
        if len(found) != 1:
            raise BrokenWheel(f"{self.path.name} has {len(found)} .dist-info directories, one is needed")
        return found.pop()

    @cached_property
    def record(self) -> tuple[Row, ...]:
        """The rows of RECORD; raises :class:`BrokenWheel`."""
        return parse_record(self.read(f"{self.dist_info}/RECORD"), self.path.name)

    @cached_property
    def metadata(self) -> str:
        """METADATA as text."""
        return self._text("METADATA")

    @cached_property
    def wheel_file(self) -> str:
        """WHEEL as text."""
        return self._text("WHEEL")

    def _text(self, name: str) -> str:
        try:
            return self.read(f"{self.dist_info}/{name}").decode("utf-8")
        except UnicodeDecodeError as error:
            raise BrokenWheel(f"{self.path.name}: {name} is not UTF-8: {error}") from error

    def sha256(self) -> str:
        """Hex digest of the whole file."""
        return hashlib.sha256(self._data).hexdigest()


def _filename(name: str) -> tuple[str, Version, BuildTag, frozenset[Tag]]:
    try:
        return parse_wheel_filename(name)
    except InvalidWheelFilename as error:
        raise BrokenWheel(f"{name} is no wheel file name: {error}") from error


class _Directory:
    """The central directory of one archive, read entry by entry and compared with the local headers."""

    def __init__(self, data: mmap.mmap, name: str) -> None:
        self._data = data
        self._name = name

    def _fail(self, what: str) -> BrokenArchive:
        return BrokenArchive(f"{self._name}: {what}")

    def _unpack(self, layout: struct.Struct, offset: int, magic: bytes, what: str) -> tuple[Any, ...]:
        if offset < 0 or offset + layout.size > len(self._data):
            raise self._fail(f"{what} at {offset:#x} lies outside the file")
        fields: tuple[Any, ...] = layout.unpack_from(self._data, offset)
        if fields[0] != magic:
            raise self._fail(f"there is no {what} at {offset:#x}")
        return fields

    def read(self) -> tuple[Member, ...]:
        start, size, count = self._end()
        if count > _MOST_MEMBERS:
            raise self._fail(f"it claims {count} members")
        members = tuple(self._members(start, size, count))
        self._check_names(members)
        self._check_places(members, start)
        return members

    def _end(self) -> tuple[int, int, int]:
        """Offset and size of the central directory and the number of its entries."""
        at = self._data.rfind(b"PK\5\6", max(0, len(self._data) - _EOCD.size - _FULL16))
        if at < 0:
            raise self._fail("it has no end of central directory: not a zip archive, or cut short")
        _, disk, _, _, count, size, start, comment = self._unpack(_EOCD, at, b"PK\5\6", "end of central directory")
        if at + _EOCD.size + comment != len(self._data):
            raise self._fail(f"{len(self._data) - at - _EOCD.size - comment} bytes follow its end")
        end = at
        # Python's zipfile writes the ZIP64 record from 2 GiB on, though the plain fields still hold the values.
        has_locator = self._data[max(0, at - _EOCD64_LOCATOR.size) : at][:4] == b"PK\6\7"
        if has_locator or _FULL32 in (size, start) or count == _FULL16:
            locator = self._unpack(_EOCD64_LOCATOR, at - _EOCD64_LOCATOR.size, b"PK\6\7", "ZIP64 locator")
            end = locator[2]
            fields = self._unpack(_EOCD64, end, b"PK\6\6", "ZIP64 end of central directory")
            count, size, start = fields[7:10]
        if disk or start + size != end:
            raise self._fail(f"its central directory at {start:#x} with {size} bytes does not reach {end:#x}")
        return start, size, count

    def _members(self, start: int, size: int, count: int) -> Iterator[Member]:
        offset = start
        for _ in range(count):
            fields = self._unpack(_CENTRAL, offset, b"PK\1\2", "central entry")
            (_, _, _, flags, method, time, date, crc, packed, full, name_len, extra_len, comment_len) = fields[:13]
            external, header = fields[15], fields[16]
            names = offset + _CENTRAL.size
            raw_name = self._data[names : names + name_len]
            name = self._decode(raw_name, flags, offset)
            extra = self._data[names + name_len : names + name_len + extra_len]
            full, packed, header = self._zip64(extra, (full, packed, header), name)
            self._check_entry(name, flags, method, packed, full)
            data = self._local(name, raw_name, header, flags, method, crc, packed, full)
            yield Member(name, method, crc, packed, full, external >> 16, date << 16 | time, header, data)
            offset = names + name_len + extra_len + comment_len
        if offset != start + size:
            raise self._fail(f"its central directory ends at {offset:#x}, not at {start + size:#x}")

    def _decode(self, raw: bytes, flags: int, offset: int) -> str:
        try:
            return raw.decode("utf-8" if flags & _UTF8 else "ascii")
        except UnicodeDecodeError as error:
            raise self._fail(f"the name in the central entry at {offset:#x} is no text: {error}") from error

    def _zip64(self, extra: bytes, sizes: tuple[int, ...], name: str) -> tuple[int, ...]:
        """``sizes`` with those that say 0xFFFFFFFF replaced from the ZIP64 block, which holds exactly these."""
        if not extra and _FULL32 not in sizes:
            return sizes
        blocks = [body for kind, body in self._extra_blocks(extra, name) if kind == _ZIP64]
        full = sum(size == _FULL32 for size in sizes)
        length = sum(len(b) for b in blocks)
        if len(blocks) > 1 or length != 8 * full:
            raise self._fail(
                f"member {name}: its ZIP64 block has {length} bytes, {8 * full} are needed; uv refuses such an archive"
            )
        if not full:
            return sizes
        values = iter(struct.unpack(f"<{full}Q", blocks[0]))
        return tuple(next(values) if size == _FULL32 else size for size in sizes)

    def _extra_blocks(self, extra: bytes, name: str) -> Iterator[tuple[int, bytes]]:
        position = 0
        while position < len(extra):
            if position + 4 > len(extra):
                raise self._fail(f"member {name}: its extra field is cut short")
            kind, length = struct.unpack_from("<HH", extra, position)
            position += 4
            if position + length > len(extra):
                raise self._fail(f"member {name}: block {kind:#x} of its extra field is cut short")
            yield kind, extra[position : position + length]
            position += length

    def _check_entry(self, name: str, flags: int, method: int, packed: int, full: int) -> None:
        if flags & _ENCRYPTED:
            raise self._fail(f"member {name} is encrypted")
        if method not in (STORED, DEFLATED):
            raise self._fail(f"member {name} uses compression method {method}; wheels use deflate or none")
        if method == STORED and packed != full:
            raise self._fail(f"member {name} is stored with {packed} bytes but declares {full}")
        if full > max(packed, 1) * (_MOST_RATIO_BIG if full > _BIG else _MOST_RATIO):
            raise self._fail(f"member {name} would inflate {packed} bytes to {full}: a zip bomb")

    def _local(
        self, name: str, raw_name: bytes, header: int, flags: int, method: int, crc: int, packed: int, full: int
    ) -> int:
        """Compare the local header with the central entry; the offset of the member's bytes."""
        fields = self._unpack(_LOCAL, header, b"PK\3\4", f"local header of {name}")
        _, _, local_flags, local_method, _, _, local_crc, local_packed, local_full, name_len, extra_len = fields
        names = header + _LOCAL.size
        if self._data[names : names + name_len] != raw_name:
            raise self._fail(f"member {name} has another name in its local header at {header:#x}")
        extra = self._data[names + name_len : names + name_len + extra_len]
        local_full, local_packed = self._zip64(extra, (local_full, local_packed), name)
        if (local_flags & ~_UTF8, local_method) != (flags & ~_UTF8, method):
            raise self._fail(f"member {name}: flags or method differ between local header and central directory")
        described = bool(flags & _DESCRIPTOR) and (local_crc, local_packed, local_full) == (0, 0, 0)
        if not described and (local_crc, local_packed, local_full) != (crc, packed, full):
            raise self._fail(f"member {name}: sizes or CRC differ between local header and central directory")
        return int(names + name_len + extra_len)

    def _check_names(self, members: tuple[Member, ...]) -> None:
        seen: set[str] = set()
        for member in members:
            name = member.name
            if name in seen:
                raise self._fail(f"member {name} is there twice")
            seen.add(name)
            parts = name.removesuffix("/").split("/")
            if name.startswith("/") or "\\" in name or "\0" in name or ":" in parts[0]:
                raise self._fail(f"member {name!r} has a name that is no relative path")
            if not _NO_NAMES.isdisjoint(parts):
                raise self._fail(f"member {name!r} would leave the directory that it is unpacked into")

    def _check_places(self, members: tuple[Member, ...], start: int) -> None:
        """Members lie one after another from the first byte to the central directory, none over another."""
        end = 0
        for member in sorted(members, key=lambda m: m.header):
            if member.header < end:
                raise self._fail(f"member {member.name} at {member.header:#x} overlaps the one before it")
            if not end and member.header:
                raise self._fail(f"{member.header} bytes stand before the first member")
            end = member.offset + member.compressed_size
        if end > start:
            raise self._fail("the last member reaches into the central directory")
