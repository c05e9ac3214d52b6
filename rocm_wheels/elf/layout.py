"""Would a loader accept this layout? Checks of the program headers, without loading anything.

patchelf 0.17.2 and 0.18.0 and strip after patchelf leave files that import on the builder and abort elsewhere
(NixOS/patchelf#492, pypa/auditwheel#716, ROCm/TheRock#6712), so dlopen proves nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocm_wheels.elf.reader import PF_W, PT_LOAD, PT_PHDR, ElfFile, Segment


def check_layout(elf: ElfFile) -> tuple[str, ...]:
    """What is wrong with the layout of ``elf``, one sentence each; empty for a sound file."""
    loads = [s for s in elf.segments if s.type == PT_LOAD]
    return (*_loads(loads, elf.size), *_headers(elf, loads), *_executable(elf, loads))


def _loads(loads: list[Segment], size: int) -> Iterator[str]:
    for before, load in zip([None, *loads], loads, strict=False):
        where = f"LOAD at {load.offset:#x}"
        if load.align > 1 and load.align & (load.align - 1):
            yield f"{where}: alignment {load.align:#x} is no power of two"
        elif load.align > 1 and (load.vaddr - load.offset) % load.align:
            yield f"{where}: address {load.vaddr:#x} and offset differ modulo the alignment {load.align:#x}"
        if load.offset + load.file_size > size:
            yield f"{where} ends at {load.offset + load.file_size:#x}, past the end of the file ({size:#x})"
        if load.file_size > load.memory_size:
            yield f"{where} has more bytes in the file than in memory"
        if before is not None and load.vaddr < before.vaddr + before.memory_size:
            yield f"{where}: address {load.vaddr:#x} does not follow the LOAD before it"


def _headers(elf: ElfFile, loads: list[Segment]) -> Iterator[str]:
    offset, length = elf.program_header_table
    if offset + length > elf.size:
        yield f"the program header table at {offset:#x} ends past the end of the file"
    for header in (s for s in elf.segments if s.type == PT_PHDR):
        if not any(_covers(load, header.vaddr, header.memory_size) for load in loads):
            yield f"PHDR at address {header.vaddr:#x} is in no LOAD"
        if header.offset != offset:
            yield f"PHDR says {header.offset:#x}, the program header table is at {offset:#x}"


def _covers(load: Segment, address: int, size: int) -> bool:
    return load.vaddr <= address and address + size <= load.vaddr + load.memory_size


def _executable(elf: ElfFile, loads: list[Segment]) -> Iterator[str]:
    """Traps of old kernels that hit programs only (ROCm/TheRock#4271, #5430; kernel 4.18 of EL8)."""
    if not elf.is_executable or not loads:
        return
    if loads[0].flags & PF_W:
        yield "the first LOAD of this program is writable, which old kernels refuse"
    for header in (s for s in elf.segments if s.type == PT_PHDR):
        if header.vaddr - header.offset != loads[0].vaddr - loads[0].offset:
            yield "the program header table was moved, which old kernels read wrong"
