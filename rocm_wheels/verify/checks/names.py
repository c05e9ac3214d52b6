"""Names of libraries: renamed ones, copies, those that are opened by name, and paths that libraries look at."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator

from rocm_wheels.repair.providers import is_rocm
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.outside import declared
from rocm_wheels.verify.subject import Subject

HASHED = re.compile(r"^(lib[\w+]+(?:64)?)-[0-9a-f]{8}(\.so[\d.]*)$")
# Paths of data; those of programs and directories are defaults that nobody follows without a ROCm there.
_DATA_FILE = re.compile(r"\.(ids|json|conf|db|txt|dat)$")


def names(subject: Subject) -> Iterator[Finding]:
    """Renamed ROCm libraries and copies of one library."""
    copies = defaultdict(list)
    for member in subject.elves:
        base = posixpath.basename(member)
        if (hashed := HASHED.match(base)) and is_rocm(hashed[1] + hashed[2]):
            yield finding("hashed-name", member, f"{base} was {hashed[1]}{hashed[2]}")
        copies[subject.content[member].digest].append(member)
    for members in copies.values():
        if len(members) > 1:
            wasted = sum(subject.elves[m].size for m in members[1:])
            yield finding("duplicate-content", members[0], f"same {wasted} bytes as {', '.join(members[1:])}")


def opened(subject: Subject) -> Iterator[Finding]:
    """ROCm libraries that are opened by name, by compiled code or Python, and files of an installation of ROCm.

    A library that METADATA declares to come from outside is found there under its name.
    """
    present = {posixpath.basename(member) for member in subject.libraries}
    opens = {m: e.opens for m, e in subject.elves.items()} | subject.python_opens
    for member, literals in opens.items():
        needed = subject.elves[member].needed if member in subject.elves else ()
        for name in sorted(set(literals) - present - set(needed)):
            if is_rocm(name) and not subject.external and not declared(subject, name):
                yield finding("dlopen-name", member, f"opens {name}, the wheel has no such file", symbol=name)
    if not subject.bundles_rocm:
        return
    for member, elf in subject.elves.items():
        files = [p for p in elf.paths if _DATA_FILE.search(p) or p.startswith("/opt/amdgpu")]
        if files:
            yield finding("data-path", member, f"has the path {files[0]}", symbol=files[0])
