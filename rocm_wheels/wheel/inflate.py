"""Inflates many members of a wheel once, in parallel, within a bound of memory.

Each member is read piece by piece, largest first; its size and CRC are always checked, its sha256 taken when asked for.
What of the content stays is for a *sink* to say: :class:`Whole` keeps all of it (a huge member in an unnamed file),
:class:`rocm_wheels.elf.tables.Tables` what the loader reads of an ELF file, None nothing.
"""

from __future__ import annotations

import hashlib
import mmap
import queue
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, TypeVar, runtime_checkable

from rocm_wheels.wheel.archive import Member, WheelArchive
from rocm_wheels.wheel.budget import WORKERS, Budget
from rocm_wheels.wheel.record import encode_digest

_T = TypeVar("_T")
_IN_MEMORY = 64 << 20
_HEAD = 64
_BESIDE = 4 << 20  # members from this size on are hashed by a thread of their own
_QUEUED = 8


class Sink(Protocol):
    """Takes the content of one member, in order and without gaps."""

    @property
    def memory(self) -> int:
        """About how many bytes it will hold."""

    @property
    def data(self) -> Any:
        """What it kept, as a buffer; asked for after the last piece."""

    def write(self, offset: int, piece: bytes) -> None:
        """Take ``piece``, which lies at ``offset`` of the content."""


@runtime_checkable
class Marking(Protocol):
    """A sink that is told as well how many packed bytes the content took so far."""

    def mark(self, size: int, packed: int) -> None:
        """``size`` bytes of content have come of ``packed`` bytes."""


class Whole:
    """Keeps the whole content: in memory, or from 64 MiB on in an unnamed file that is mapped.

    The buffer goes with its last view.
    """

    def __init__(self, size: int) -> None:
        self.memory = size if size <= _IN_MEMORY else _QUEUED << 20
        self._size = size
        self._file: BinaryIO | None = None
        self._content: bytes | mmap.mmap = b""

    def write(self, offset: int, piece: bytes) -> None:
        """Keep ``piece``."""
        if len(piece) == self._size:
            self._content = piece
        elif self._size <= _IN_MEMORY:
            if isinstance(self._content, bytes):
                self._content = mmap.mmap(-1, self._size)
            self._content[offset : offset + len(piece)] = piece
        else:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115  closed when it is mapped
            self._file.write(piece)

    @property
    def data(self) -> memoryview:
        """The content."""
        if self._file is not None:
            self._file.flush()
            self._content = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
            self._file.close()
            self._file = None
        return memoryview(self._content)


@dataclass(frozen=True)
class Inflated:
    """A member after it went by: its hash as RECORD writes it ("" unless asked for) and its sink."""

    member: Member
    digest: str
    sink: Sink | None

    @property
    def data(self) -> Any:
        """What the sink kept, as a buffer; empty without one."""
        return b"" if self.sink is None else self.sink.data


def inflate_each(
    archive: WheelArchive,
    members: Iterable[Member],
    visit: Callable[[Inflated], _T],
    *,
    sink: Callable[[Member, bytes], Sink | None] = lambda member, head: None,
    hashed: bool = False,
    memory: int = 512 << 20,
) -> Iterator[_T]:
    """What ``visit`` makes of each of ``members``, largest first; it runs in a thread, one of several.

    ``sink`` gets the member and its first bytes and says what is kept; sinks hold at most about ``memory`` bytes at the
    same time, those of visited members not counted. Raises :class:`BrokenArchive` for a member that does not inflate to
    what the archive declares, and whatever ``visit`` raises.
    """
    budget = Budget(memory)

    def work(member: Member) -> _T:
        kept = sink(member, archive.peek(member, _HEAD))
        with budget.take(kept.memory if kept else 0):
            digest = pour(archive, member, kept, hashed=hashed)
            return visit(Inflated(member, digest, kept))

    with ThreadPoolExecutor(WORKERS) as pool:
        yield from pool.map(work, sorted(members, key=lambda m: (-m.size, m.name)))


def pour(
    archive: WheelArchive, member: Member, sink: Sink | None, *, hashed: bool = False, stop: int | None = None
) -> str:
    """Inflate ``member`` once into ``sink``; its hash as RECORD writes it, or "" when it is not ``hashed``.

    With ``stop`` only the content up to that offset, for one that was poured (and so checked) before.
    """
    sha = hashlib.sha256()
    with _hasher(sha.update if hashed else None, member.size) as update:
        offset = 0
        for piece in archive.chunks(member, sink.mark if isinstance(sink, Marking) else None):
            if sink is not None:
                sink.write(offset, piece)
            if update is not None:
                update(piece)
            offset += len(piece)
            if stop is not None and offset >= stop:
                break
    return encode_digest(sha.digest()) if hashed else ""


@contextmanager
def _hasher(update: Callable[[bytes], None] | None, size: int) -> Iterator[Callable[[bytes], None] | None]:
    if update is None or size < _BESIDE:
        yield update
        return
    with beside(update) as put:
        yield put


@contextmanager
def beside(take: Callable[[_T], None]) -> Iterator[Callable[[_T], None]]:
    """A function that hands what it gets to ``take`` in a thread of its own, in order, a few pieces ahead at most.

    Leaving the block waits until all was taken; what ``take`` raises is raised there.
    """
    waiting: queue.Queue[_T | None] = queue.Queue(_QUEUED)
    failed: list[BaseException] = []

    def drain() -> None:
        while (piece := waiting.get()) is not None:
            if not failed:
                try:
                    take(piece)
                except BaseException as error:
                    failed.append(error)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(drain)
        try:
            yield waiting.put
        finally:
            waiting.put(None)
            done.result()
    if failed:
        raise failed[0]
