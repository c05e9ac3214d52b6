"""Extension modules against the Pythons of the tag."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator

from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject

_EXTENSION = re.compile(r"(?P<module>[^.]+)\.(?:cpython-(?P<python>\d+t?)\w*-x86_64-linux-gnu|(?P<stable>abi3))\.so")
_LIBPYTHON = re.compile(r"libpython3?\.?[\d.]*t?\.so[\d.]*")


def extensions(subject: Subject) -> Iterator[Finding]:
    """Each extension module is there for every Python of the tag, and needs no libpython."""
    wanted = {t.abi if t.abi.startswith("cp") else t.interpreter for t in subject.archive.tags}
    stable = {t.abi for t in subject.archive.tags} == {"abi3"}
    built: dict[str, set[str]] = defaultdict(set)
    for member, elf in subject.elves.items():
        if match := _EXTENSION.fullmatch(posixpath.basename(member)):
            built[posixpath.join(posixpath.dirname(member), match["module"])].add(match["python"] or "abi3")
        for library in elf.needed:
            if _LIBPYTHON.fullmatch(library) and match:
                yield finding("python-abi", member, f"needs {library}, which many Pythons do not have", symbol=library)
    for module, pythons in built.items():
        if "abi3" in pythons:
            continue
        numbers = {f"cp{p}" for p in pythons}
        lacking = sorted(wanted - numbers)
        if stable or lacking:
            tag = "abi3" if stable else ", ".join(lacking)
            yield finding("python-abi", module, f"is for {', '.join(sorted(numbers))}, the tag says {tag}")
