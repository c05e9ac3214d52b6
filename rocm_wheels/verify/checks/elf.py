"""Each ELF file by itself: layout, stack, search path, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocm_wheels.elf.reader import EM_AMDGPU, EM_X86_64
from rocm_wheels.repair.providers import is_rocm
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.elves import ElfFacts
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.outside import inside_folders
from rocm_wheels.verify.subject import Subject

_SYSTEM = re.compile(r"/(opt/rocm|usr/|lib)")
_FAMILY = re.compile(r"_rocm_sdk_libraries_\w+/lib")


def check(subject: Subject) -> Iterator[Finding]:
    """What a loader would refuse or find in the wrong place."""
    yield from subject.unreadable
    for member, elf in subject.elves.items():
        if not elf.is_dynamic or elf.machine == EM_AMDGPU:
            continue
        if elf.machine != EM_X86_64:
            yield finding("wrong-machine", member, f"machine {elf.machine} of ELF, x86-64 is {EM_X86_64}")
            continue
        for problem in elf.layout:
            yield finding("layout", member, problem)
        if elf.stack_executable:
            yield finding("exec-stack", member, "PT_GNU_STACK is missing or has the execute flag")
        if elf.text_relocations:
            yield finding("text-relocations", member, "DT_TEXTREL")
        yield from _rpath(member, elf)
        yield from _kind(subject, elf)
        for library in sorted(elf.verneed.keys() - set(elf.needed)):
            versions = ", ".join(elf.verneed[library])
            yield finding("version-needs", member, f"versions {versions} of {library}, which is not needed")


def _rpath(member: str, elf: ElfFacts) -> Iterator[Finding]:
    for text in filter(None, (elf.rpath, elf.runpath)):
        for entry in text.split(":"):
            if not entry:
                yield finding("empty-rpath", member, repr(text))
            elif entry.startswith(("$ORIGIN", "${ORIGIN}")):
                continue
            elif _SYSTEM.match(entry):
                yield finding("system-rpath", member, entry)
            else:
                yield finding("absolute-rpath", member, entry)
        if _FAMILY.search(text) and "_rocm_sdk_libraries/lib" not in text:
            yield finding("layout-missing", member, text)


def _kind(subject: Subject, elf: ElfFacts) -> Iterator[Finding]:
    if elf.runpath is None:
        return
    folders = list(inside_folders(elf))
    for name in elf.needed:
        if is_rocm(name) and any(f"{folder}/{name}" in subject.elves for folder in folders):
            yield finding("runpath", elf.name, f"DT_RUNPATH {elf.runpath} for {name}")
            return
