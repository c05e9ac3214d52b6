"""Changed ranges of a file's content, put in while the content goes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Change:
    """``data`` in the place of as many bytes at ``offset`` of the content."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """Offset of the byte after it."""
        return self.offset + len(self.data)


class Changes:
    """Applies changes, which may not overlap, to content that comes in order."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._waiting = sorted(changes, reverse=True)  # the next one last
        self._open: list[Change] = []
        self.end = 0

    def apply(self, offset: int, piece: bytes) -> bytes:
        """``piece``, which lies at ``offset``, as it will be; :attr:`end` is where the last change so far ends."""
        stop = offset + len(piece)
        while self._waiting and self._waiting[-1].offset < stop:
            self._open.append(self._waiting.pop())
            self.end = max(self.end, self._open[-1].end)
        if not self._open:
            return piece
        data = bytearray(piece)
        for change in self._open:
            first, last = max(change.offset, offset), min(change.end, stop)
            data[first - offset : last - offset] = change.data[first - change.offset : last - change.offset]
        self._open = [change for change in self._open if change.end > stop]
        return bytes(data)


def changed(pieces: Iterable[bytes], changes: Iterable[Change], tail: bytes = b"") -> Iterator[bytes]:
    """The pieces of a file with ``changes``, and ``tail`` behind them."""
    applied, offset = Changes(changes), 0
    for piece in pieces:
        yield applied.apply(offset, piece)
        offset += len(piece)
    if tail:
        yield tail
