"""Reads the ELF files of a wheel once, in parallel and within a bound of memory, and lets go of their bytes."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.offload import Bundle, embedded_bundles, is_split, read_bundles
from rocm_wheels.elf.reader import EM_AMDGPU
from rocm_wheels.errors import BrokenBundle, BrokenElf, NotElf
from rocm_wheels.inspect.model import Bytes, Code, Library
from rocm_wheels.verify.elves import Spool
from rocm_wheels.wheel import Member, WheelArchive
from rocm_wheels.wheel.inflate import Inflated, inflate_each

_ELF = b"\x7fELF"
_MOST_COMMENT = 1 << 20
_COMPILER = re.compile(r"(?:AMD )?(?:clang|LLD|GCC|rustc).*")


class _Measured(Spool):
    """A member that remembers how much of it every packed byte brought."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.sizes = [0]
        self.packed = [0]

    def mark(self, size: int, packed: int) -> None:
        """As in :class:`rocm_wheels.wheel.inflate.Marking`."""
        self.sizes.append(size)
        self.packed.append(packed)

    def packed_bytes(self, start: int, size: int) -> int:
        """About how many packed bytes the range takes: exact at each piece of inflating, even in between."""
        if len(self.sizes) == 1:  # stored, not deflated
            return size
        return round(self._at(start + size) - self._at(start))

    def _at(self, offset: int) -> float:
        after = min(max(1, bisect.bisect_left(self.sizes, offset)), len(self.sizes) - 1)
        low, high = self.sizes[after - 1], self.sizes[after]
        share = (min(offset, high) - low) / (high - low) if high > low else 0.0
        return self.packed[after - 1] + share * (self.packed[after] - self.packed[after - 1])


def read_libraries(archive: WheelArchive, memory_mib: int) -> Iterator[Library | tuple[str, str]]:
    """Every ELF file for this machine type as a :class:`Library`; member and reason for one that cannot be read.

    Raises :class:`BrokenArchive`.
    """
    members = [m for m in archive.members if _is_elf(archive, m)]
    yield from inflate_each(archive, members, _visit, sink=lambda m, _: _Measured(m.size), memory=memory_mib << 20)


def _is_elf(archive: WheelArchive, member: Member) -> bool:
    head = archive.peek(member, 20) if member.size >= 64 else b""
    return head[:4] == _ELF and head[18:20] != EM_AMDGPU.to_bytes(2, "little")


def _visit(inflated: Inflated) -> Library | tuple[str, str]:
    assert isinstance(inflated.sink, _Measured)
    member = inflated.member
    try:
        return _library(inflated.sink.elf(member.name), inflated.sink, member)
    except (BrokenElf, NotElf) as error:
        return member.name, _printable(error.message)


def _library(elf: ElfFile, content: _Measured, member: Member) -> Library:
    bundles: tuple[Bundle, ...] = ()
    embedded: tuple[Bundle, ...] = ()
    broken = ""
    try:
        bundles, embedded = read_bundles(elf), embedded_bundles(elf)
    except (BrokenBundle, BrokenElf) as error:
        broken = error.message
    return Library(
        name=member.name,
        total=Bytes(member.size, member.compressed_size),
        needed=tuple(map(_printable, elf.needed)),
        soname=elf.soname and _printable(elf.soname),
        rpath=elf.rpath and _printable(elf.rpath),
        runpath=elf.runpath and _printable(elf.runpath),
        verneed={_printable(name): tuple(map(_printable, found)) for name, found in elf.verneed.items()},
        compilers=_compilers(elf),
        bundles=bundles,
        embedded=embedded,
        code=_code((*bundles, *embedded), elf, content),
        split=is_split(elf),
        broken=_printable(broken),
    )


def _printable(text: str) -> str:
    """``text`` with what is no character, or would steer a terminal, written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _compilers(elf: ElfFile) -> tuple[str, ...]:
    text = bytes(elf.section_bytes(".comment")[:_MOST_COMMENT]).decode("utf-8", "replace")
    return tuple(sorted({_printable(line) for line in text.split("\0") if _COMPILER.match(line)}))


def _code(bundles: tuple[Bundle, ...], elf: ElfFile, content: _Measured) -> tuple[Code, ...]:
    """Per target: what all bundles have for it. Inside a compressed bundle stored bytes are shared out by size."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for bundle in bundles:
        section = elf.section(bundle.section)
        assert section is not None
        packed = content.packed_bytes(section.offset + bundle.offset, bundle.size)
        inside = sum(entry.size for entry in bundle.entries) or 1
        for entry in bundle.entries:
            if entry.arch and entry.size:
                share = entry.size / inside
                stored = entry.size if bundle.compression == "none" else bundle.size * share
                whole = zip(sums[entry.arch], (1, entry.size, stored, packed * share), strict=True)
                sums[entry.arch] = [old + new for old, new in whole]
    return tuple(Code(arch, *(round(value) for value in values)) for arch, values in sorted(sums.items()))
