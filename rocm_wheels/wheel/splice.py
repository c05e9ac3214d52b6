"""Changes ranges of a deflated member and keeps its deflate stream everywhere else.

Blocks that a change touches are deflated anew, and those up to 32 KiB after it, since matches reach back that far. New
blocks begin and end on byte boundaries; empty blocks restore the bit at which the old stream goes on, so that all of it
is copied as bytes. The result is one stream with one final block, as strict inflaters want it (RFC 1951).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from isal import isal_zlib

from rocm_wheels.errors import BrokenArchive, BrokenWheel
from rocm_wheels.wheel.archive import DEFLATED, Member, WheelArchive
from rocm_wheels.wheel.blocks import Piece, can_walk, walk
from rocm_wheels.wheel.change import Change, Changes
from rocm_wheels.wheel.codec import Extent, Packed, Part, deflate_range
from rocm_wheels.wheel.inflate import beside
from rocm_wheels.wheel.record import encode_digest

_WINDOW = 32 << 10
_MOST_HELD = 64 << 20


class Unspliceable(Exception):
    """The member has to be deflated as a whole: it is stored, or one of its blocks is too long to be held."""


def splice(
    archive: WheelArchive, member: Member, changes: Sequence[Change], *, tail: bytes = b"", recorded: str = ""
) -> Packed:
    """``member`` with ``changes`` and with ``tail`` behind its end, deflated; inflated once, never held whole.

    ``recorded`` is the hash that RECORD has of the member: :class:`BrokenWheel` is raised for another content,
    :class:`BrokenArchive` for a damaged stream, :class:`Unspliceable` when this way is not open.
    """
    if member.method != DEFLATED or not can_walk():
        raise Unspliceable(member.name)
    where = f"{archive.path.name}: member {member.name} at {member.offset:#x}"
    splicer = _Splicer(archive, member, changes, tail)
    old, new = hashlib.sha256(), hashlib.sha256()

    def digest(pair: tuple[bytes, bytes]) -> None:
        if recorded:
            old.update(pair[0])
        new.update(pair[1])

    with beside(digest) as put:
        for piece in walk(lambda at, size: archive.read_at(member.offset + at, size), member.compressed_size, where):
            put((piece.data, splicer.take(piece)))
        put((b"", tail))
    if (splicer.old_crc, splicer.size) != (member.crc, member.size):
        raise BrokenArchive(f"{where} fails its CRC or has another size than the {member.size} bytes that it declares")
    if recorded and recorded != encode_digest(old.digest()):
        raise BrokenWheel(
            f"{archive.path.name}: {member.name} is not the file that RECORD vouches for",
            remedy="get the wheel again, or make a new RECORD where it was built",
        )
    crc, parts = isal_zlib.crc32(tail, splicer.crc), tuple(splicer.out.parts)
    return Packed(DEFLATED, crc, member.size + len(tail), splicer.out.size, encode_digest(new.digest()), parts)


class _Splicer:
    """Finds the blocks to replace while content goes by, and lays the new stream.

    What is held began at ``_start`` (a bit of the old stream); old bits up to ``_copied`` were dealt with. Blocks are
    being replaced while ``_until`` is not 0: up to that offset of the content.
    """

    def __init__(self, archive: WheelArchive, member: Member, changes: Sequence[Change], tail: bytes) -> None:
        self.out = _Stream(archive, member)
        self.old_crc = self.crc = self.size = 0
        self._changes = Changes(changes)
        self._tail = tail
        self._held: list[bytes] = []
        self._start = self._copied = self._until = 0

    def take(self, piece: Piece) -> bytes:
        """The content of ``piece`` as it will be."""
        before = self._changes.end
        data = self._changes.apply(piece.offset, piece.data)
        if self._changes.end > before:
            self._until = self._changes.end + _WINDOW
        self.old_crc = isal_zlib.crc32(piece.data, self.old_crc)
        self.crc = isal_zlib.crc32(data, self.crc)
        self.size += len(data)
        self._held.append(data)
        if piece.bit is not None:
            self._boundary(piece.bit, last=piece.last)
        elif sum(map(len, self._held)) > _MOST_HELD:
            raise Unspliceable("a block is too long")
        return data

    def _boundary(self, bit: int, *, last: bool) -> None:
        """A block has ended at ``bit``: replace what is held, hold on, or let go of it."""
        replace = self._until or (last and self._tail)
        if replace and self._until > self.size and not last:
            return
        if replace:
            content = b"".join(self._held)
            self.out.copy(self._copied, self._start)
            self.out.insert(content + self._tail if last else content, bit, last=last)
            self._copied = bit
        elif last:
            self.out.copy(self._copied, 8 * self.out.member.compressed_size)
        self._start, self._until, self._held = bit, 0, []


class _Stream:
    """A deflate stream of bits of the old one and of new blocks. ``_byte`` holds ``_count`` bits of the next byte."""

    def __init__(self, archive: WheelArchive, member: Member) -> None:
        self.member = member
        self.parts: list[Part] = []
        self.size = self._byte = self._count = 0
        self._archive = archive

    def copy(self, start: int, stop: int) -> None:
        """Bits ``start`` to ``stop`` of the old stream; ``start`` has the phase that this one is in."""
        if start == stop:
            return
        first, last = start // 8, stop // 8
        if self._count:
            self._byte |= self._old(first) & -1 << self._count
            if first == last:
                self._keep(self._byte, stop % 8)
                return
            self._put(bytes([self._byte]))
            first += 1
        self._put(Extent(self._archive, self.member.offset + first, last - first))
        self._keep(self._old(last) if stop % 8 else 0, stop % 8)

    def insert(self, content: bytes, bit: int, *, last: bool) -> None:
        """New blocks for ``content``, and empty ones up to the phase of ``bit``."""
        if self._count:  # an empty stored block: three bits of header, zeros up to a byte, no length
            self._put(bytes([self._byte, 0][: (self._count + 3 + 7) // 8]) + b"\0\0\xff\xff")
        self._keep(0, 0)
        self._put(deflate_range(content, last=last))
        if not last:
            self._fill(bit % 8)

    def _fill(self, phase: int) -> None:
        bits, count = 0, 0
        for block, size in [_EMPTY_DYNAMIC] * (phase % 2) + [_EMPTY_FIXED] * (phase // 2):
            bits |= block << count
            count += size
        filler = bits.to_bytes(count // 8 + 1, "little")
        self._put(filler[:-1])
        self._keep(filler[-1], phase)

    def _old(self, index: int) -> int:
        return self._archive.read_at(self.member.offset + index, 1)[0]

    def _keep(self, byte: int, count: int) -> None:
        self._byte, self._count = byte & (1 << count) - 1, count

    def _put(self, part: bytes | Extent) -> None:
        size = part.size if isinstance(part, Extent) else len(part)
        if size:
            self.parts.append(part)
            self.size += size


def _dynamic() -> tuple[int, int]:
    bits = count = 0
    # Header, 257 literals and lengths, 2 distances, 18 code lengths in RFC 1951's order: those of 18 and 2 have two
    # bits, that of 1 has one. Then the lengths: 2, 2, 138 and 116 zeros (code 18), 1, 1, 1; at last the end of block.
    fields = [(0, 1), (2, 2), (0, 5), (1, 5), (14, 4)]
    fields += [({2: 2, 15: 2, 17: 1}.get(place, 0), 3) for place in range(18)]
    fields += [(1, 2), (1, 2), (3, 2), (138 - 11, 7), (3, 2), (116 - 11, 7), (0, 1), (0, 1), (0, 1), (0, 1)]
    for value, size in fields:
        bits |= value << count
        count += size
    return bits, count


# Blocks without content. Fixed: header, not final, and the seven zeros of end of block. Dynamic: an odd number of bits,
# so that the two together reach every phase; all of its codes are complete, as strict inflaters want them.
_EMPTY_FIXED = (0b010, 10)
_EMPTY_DYNAMIC = _dynamic()
assert _EMPTY_DYNAMIC[1] % 8 == 1
