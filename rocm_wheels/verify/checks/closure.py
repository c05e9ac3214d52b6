"""Each need by its own file's path, as the loader would look for it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from rocm_wheels.elf.reader import EM_X86_64
from rocm_wheels.repair.providers import is_rocm, stem
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.elves import ElfFacts
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.outside import declared, inside_folders, place_outside
from rocm_wheels.verify.subject import Subject
from rocm_wheels.wheel.tags import system_libraries


def closure(subject: Subject) -> Iterator[Finding]:
    """Every needed library is in the wheel where the file's own path leads, of the system, or declared."""
    outside: dict[tuple[str, str], list[str]] = {}
    for member, elf in subject.elves.items():
        if elf.machine != EM_X86_64:
            continue
        folders = list(inside_folders(elf))
        for name in elf.needed:
            target = next((f"{f}/{name}" for f in folders if f"{f}/{name}" in subject.libraries), None)
            if target:
                yield from _versions(elf, name, subject.libraries[target])
            elif name in system_libraries() or declared(subject, name):
                continue
            elif (place := place_outside(elf, name)) and _may_be_outside(subject):
                outside.setdefault((name, place), []).append(member)
            else:
                yield from _unreachable(member, name, subject)
    for (name, place), members in outside.items():
        others = f", and {len(members) - 1} more files do" if len(members) > 1 else ""
        yield finding("external-undeclared", members[0], f"takes {name} from {place}{others}; METADATA does not say so")


def _may_be_outside(subject: Subject) -> bool:
    """A wheel that brings ROCm itself, or that a build of this project made, has to be closed or say what it lacks."""
    return not subject.bundles_rocm and subject.profile != "torch"


def _unreachable(member: str, name: str, subject: Subject) -> Iterator[Finding]:
    inside = subject.member_of(name)
    if inside:
        yield finding("closure", member, f"needs {name}, which is {inside}, where its RPATH does not lead", symbol=name)
        return
    same = sorted(posixpath.basename(m) for m in subject.elves if stem(posixpath.basename(m)) == stem(name))
    if same and is_rocm(name):
        yield finding("soname-major", member, f"needs {name}, the wheel has {same[0]}", symbol=name)
        return

    layers = [str(r) for r in subject.requirements if r.name.startswith("rocm-layers")]
    if layers and not subject.companions:
        evidence = f"needs {name}: not in the wheel; give the wheels along that it requires: {', '.join(layers)}"
    else:
        evidence = f"needs {name}: not in the wheel, not of the system, not declared external"
    yield finding("closure", member, evidence, symbol=name)


def _versions(elf: ElfFacts, name: str, target: ElfFacts) -> Iterator[Finding]:
    missing = sorted(set(elf.verneed.get(name, ())) - set(target.verdef))
    if missing and target.verdef:
        evidence = f"{target.name} does not define {', '.join(missing)} of {name}"
        yield finding("defined-versions", elf.name, evidence, symbol=missing[0])
