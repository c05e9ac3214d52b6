"""What the checks have to know of an ELF file, read once while its bytes are at hand.

Big files are spooled to disk and read range by range: neither their bytes nor their pages stay in memory.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocm_wheels.elf import ElfFile, offload
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.elf.offload import Bundle
from rocm_wheels.elf.reader import SHT_NOBITS
from rocm_wheels.errors import BrokenBundle, BrokenElf

_IN_MEMORY = 16 << 20
_WINDOW = 4 << 20
_LONGEST = 4096
_CONSTANTS = ".rodata"
_NO_NUMPY = b"PyTorch was compiled without NumPy support"  # torch/csrc/utils/tensor_numpy.cpp, only without USE_NUMPY
# A whole string that is a library's name, or a path inside an installation of ROCm; each with its fixed beginning,
# which is searched for first: constants are gigabytes.
_LIBRARY = (b"\0lib", re.compile(rb"\0(lib[\w+-]+\.so(?:\.\d+)*)\0"))
_PATH = (b"\0/opt/", re.compile(rb"\0(/opt/(?:rocm|amdgpu)[\w./+-]*)\0"))


class Spool:
    """A sink of :mod:`rocm_wheels.wheel.inflate` that keeps small files in memory and the others in an unnamed file."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = size if size <= _IN_MEMORY else 0
        self._file: Any = None if size <= _IN_MEMORY else tempfile.TemporaryFile()  # noqa: SIM115  goes with the sink
        self._bytes = bytearray()

    @property
    def data(self) -> bytes | bytearray:
        """The content of a small file; of a big one nothing."""
        return self._bytes

    def write(self, offset: int, piece: bytes) -> None:
        """Keep ``piece``."""
        if self._file is None:
            self._bytes += piece
        else:
            self._file.write(piece)

    def elf(self, name: str) -> ElfFile:
        """The file; raises :class:`NotElf` and :class:`BrokenElf`."""
        if self._file is None:
            return ElfFile.parse(self._bytes, name)
        self._file.flush()
        ElfFile.parse(os.pread(self._file.fileno(), 64, 0), name)
        return _SpooledFile(self._file, self.size, name)


class _SpooledFile(ElfFile):
    """An ELF file of which each range is read from disk when it is asked for."""

    def __init__(self, file: Any, size: int, name: str) -> None:
        self._file, self._size = file, size
        super().__init__(b"", name)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self._size

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        return layout.unpack(self.bytes_at(offset, layout.size))

    def bytes_at(self, offset: int, size: int) -> memoryview:
        """As in :class:`ElfFile`, but copied."""
        if offset < 0 or size < 0 or offset + size > self._size:
            raise BrokenElf(f"{self.name}: {size:#x} bytes at {offset:#x} lie outside the file ({self._size:#x})")
        return memoryview(os.pread(self._file.fileno(), size, offset))


@dataclass(frozen=True, kw_only=True)
class ElfFacts:
    """An ELF member without its bytes; names and tables as in :class:`rocm_wheels.elf.ElfFile`.

    ``opens`` are whole strings among the constants that are names of libraries, ``paths`` those that lie in an
    installation of ROCm; ``symbols`` has a symbol for each version that a policy of the wheel's tags forbids;
    ``broken_code`` says why the device code cannot be read; ``without_numpy`` that PyTorch's bindings have no NumPy.
    """

    name: str
    machine: int
    is_dynamic: bool
    is_executable: bool
    size: int
    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    verneed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    verdef: tuple[str, ...] = ()
    stack_executable: bool = False
    text_relocations: bool = False
    layout: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    symbols: Mapping[str, str] = field(default_factory=dict)
    bundles: tuple[Bundle, ...] = ()
    broken_code: str = ""
    split: bool = False
    cuda: bool = False
    without_numpy: bool = False

    @property
    def search_path(self) -> tuple[str, ...]:
        """Entries of the path that the loader honours: RUNPATH, or RPATH when there is none."""
        text = self.rpath if self.runpath is None else self.runpath
        return tuple(text.split(":")) if text else ()

    @property
    def everywhere(self) -> frozenset[str]:
        """GPU targets that every bundle has code for."""
        return frozenset.intersection(*(b.archs for b in self.bundles)) if self.bundles else frozenset()


def facts_of(elf: ElfFile, forbidden: Callable[[ElfFile], Iterable[str]]) -> ElfFacts:
    """Read ``elf``; ``forbidden`` names the symbol versions whose symbols are wanted. Raises :class:`BrokenElf`."""
    opens, paths, without_numpy = _literals(elf)
    bundles, broken = _device_code(elf)
    return ElfFacts(
        name=elf.name,
        machine=elf.machine,
        is_dynamic=elf.is_dynamic,
        is_executable=elf.is_executable,
        size=elf.size,
        needed=elf.needed,
        soname=elf.soname,
        rpath=elf.rpath,
        runpath=elf.runpath,
        verneed=elf.verneed,
        verdef=elf.verdef,
        stack_executable=elf.stack_executable,
        text_relocations=elf.text_relocations,
        layout=check_layout(elf),
        opens=opens,
        paths=paths,
        symbols={version: elf.symbol_of(version) for version in forbidden(elf)},
        bundles=bundles,
        broken_code=broken,
        split=offload.is_split(elf),
        cuda=elf.section(".nv_fatbin") is not None,
        without_numpy=without_numpy,
    )


def _device_code(elf: ElfFile) -> tuple[tuple[Bundle, ...], str]:
    try:
        return (*offload.read_bundles(elf), *offload.embedded_bundles(elf)), ""
    except BrokenBundle as error:
        return (), error.message


def _literals(elf: ElfFile) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Names of libraries other than the file's own and paths of ROCm among the constants; whether NumPy was absent."""
    names: set[str] = set()
    paths: set[str] = set()
    without_numpy = False
    for text in _constants(elf):
        names.update(_words(text, *_LIBRARY))
        paths.update(_words(text, *_PATH))
        without_numpy |= _NO_NUMPY in text
    return tuple(sorted(names - {elf.soname or ""})), tuple(sorted(paths)), without_numpy


def _words(text: bytes, start: bytes, word: re.Pattern[bytes]) -> Iterator[str]:
    at = text.find(start)
    while at >= 0:
        if match := word.match(text, at):
            yield match[1].decode("ascii")
        at = text.find(start, at + 1)


def _constants(elf: ElfFile) -> Iterator[bytes]:
    """``.rodata`` in overlapping windows, each with the byte before it."""
    section = elf.section(_CONSTANTS)
    if section is None or section.type == SHT_NOBITS:
        return
    for start in range(0, section.size, _WINDOW):
        before = b"\0" if start == 0 else bytes(elf.bytes_at(section.offset + start - 1, 1))
        size = min(_WINDOW + _LONGEST, section.size - start)
        yield before + bytes(elf.bytes_at(section.offset + start, size)) + b"\0"
