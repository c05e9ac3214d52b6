"""One library made slim: which code objects stay, and the edits of its file that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.cut import Piece, Pointer, pointers_into, replace_section, repoint, symbols_in
from rocm_wheels.elf.offload import (
    EMBEDDED,
    SECTION,
    WRAPPERS,
    Bundle,
    embedded_bundles,
    inflated,
    is_split,
    read_bundles,
)
from rocm_wheels.elf.reader import Section
from rocm_wheels.errors import ArchMissing, NothingToSlim
from rocm_wheels.gpu.cards import serve
from rocm_wheels.slim.bundle import compress, rebundle, version_of

_PAGE = 4096
_WRAPPER_SIZE = 24


@dataclass(frozen=True)
class Library:
    """A library with device code: the code objects that stay and go, by target, and the bytes of each side."""

    member: str
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    bundles: int
    kept_size: int
    removed_size: int


def wanted(available: Sequence[str], archs: Sequence[str], where: str) -> frozenset[str]:
    """Which of the ``available`` targets GPUs of ``archs`` load: their own code, else that of their generic target.

    Raises :class:`ArchMissing` for a GPU that nothing here serves without pretending to be another.
    """
    found: set[str] = set()
    for arch in archs:
        served = serve(arch, available)
        if served.kind not in ("native", "generic"):
            raise ArchMissing(
                f"{where} has no code for {arch}: {served.why}",
                remedy=f"it has {', '.join(sorted(available))}" + (f"; {served.variable}" if served.variable else ""),
            )
        name = served.arch.partition(":")[0]
        found |= {a for a in available if a.partition(":")[0] == name and serve(arch, [a]).runs}
    return frozenset(found)


def plan_library(elf: ElfFile, archs: Sequence[str]) -> Library | None:
    """What becomes of the device code of ``elf``; None when it has none.

    Raises :class:`ArchMissing`, and :class:`NothingToSlim` for a library whose code was moved out into .kpack archives.
    """
    if is_split(elf):
        raise NothingToSlim(
            f"{elf.name}: its GPU code lies in .kpack archives", remedy="leave the device packages of other GPUs out"
        )
    bundles = (*read_bundles(elf), *embedded_bundles(elf))
    if not bundles:
        return None
    kept: dict[str, int] = {}
    removed: dict[str, int] = {}
    for bundle in bundles:
        stays = wanted(sorted(bundle.archs), archs, f"{elf.name}: the bundle at {bundle.offset:#x}")
        for entry in bundle.entries:
            if entry.arch and entry.size:
                side = kept if entry.arch in stays else removed
                side[entry.arch] = side.get(entry.arch, 0) + entry.size
    sizes = sum(kept.values()), sum(removed.values())
    return Library(elf.name, tuple(sorted(kept)), tuple(sorted(removed)), len(bundles), *sizes)


def slim_library(elf: ElfFile, library: Library) -> tuple[Piece, ...]:
    """The edits that make ``elf`` what ``library`` says; empty when nothing goes."""
    if not library.removed:
        return ()
    constants, section = elf.section(EMBEDDED), elf.section(SECTION)
    pieces = [] if constants is None else _in_place(elf, constants, embedded_bundles(elf), library.kept)
    if section is not None:
        bundles = read_bundles(elf)
        pointers = _movable(elf, section, bundles)
        if pointers is None:
            pieces += _in_place(elf, section, bundles, library.kept)
        else:
            pieces += _together(elf, section, bundles, library.kept, pointers)
    return tuple(sorted(pieces))


def _together(
    elf: ElfFile, section: Section, bundles: Sequence[Bundle], kept: Sequence[str], pointers: tuple[Pointer, ...]
) -> list[Piece]:
    """The bundles one after another from the section's start, what is left over gone."""
    content, moves = bytearray(), {}
    for bundle in bundles:
        content += bytes(-len(content) % _PAGE)
        moves[section.address + bundle.offset] = section.address + len(content)
        content += _stored(elf, bundle, kept)
    return [*replace_section(elf, section, bytes(content)), *repoint(pointers, moves)]


def _stored(elf: ElfFile, bundle: Bundle, kept: Sequence[str]) -> bytes:
    """The new bundle; the old one where compressing anew would have made it longer."""
    old = elf.section_bytes(bundle.section)[bundle.offset : bundle.offset + bundle.size]
    new = rebundle(inflated(elf, bundle), bundle, kept)
    if version := version_of(old):
        new = compress(new, version, bundle.compression)
    return new if len(new) < len(old) else bytes(old)


def _movable(elf: ElfFile, section: Section, bundles: Sequence[Bundle]) -> tuple[Pointer, ...] | None:
    """The wrappers' pointers, if they are all that refers to the bundles and there is one for each."""
    wrappers = elf.section(WRAPPERS)
    if wrappers is None or symbols_in(elf, section):
        return None
    pointers = pointers_into(elf, section)
    places = [wrappers.address + index * _WRAPPER_SIZE + 8 for index in range(len(bundles))]
    targets = sorted(section.address + bundle.offset for bundle in bundles)
    if [p.address for p in pointers] != places or sorted(p.target for p in pointers) != targets:
        return None
    return pointers


def _in_place(elf: ElfFile, section: Section, bundles: Sequence[Bundle], kept: Sequence[str]) -> list[Piece]:
    """Every bundle where it was, zeros behind it: the file keeps its size, the archive does not."""
    pieces = []
    for bundle in bundles:
        start, new = section.offset + bundle.offset, _stored(elf, bundle, kept)
        pieces.append(Piece(start, start + bundle.size, new + bytes(bundle.size - len(new))))
    return pieces
