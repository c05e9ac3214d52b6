"""Puts an inspection together."""

from __future__ import annotations

import re
from pathlib import Path

from rocm_wheels.inspect.data import data_files, parts
from rocm_wheels.inspect.model import Bytes, Inspection, Library
from rocm_wheels.inspect.needs import wheel_needs
from rocm_wheels.inspect.origin import hip_symbols, rocm_evidence
from rocm_wheels.inspect.read import read_libraries
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.metadata import headers
from rocm_wheels.wheel.tags import Blocker, measure, system_libraries


def inspect_wheel(wheel: Path, *, memory_mib: int = 512) -> Inspection:
    """What is in ``wheel``, read once; holds at most about ``memory_mib`` at a time.

    An ELF file that cannot be read is listed with the reason. Raises :class:`BrokenArchive` and :class:`BrokenWheel`.
    """
    with WheelArchive.open(wheel) as archive:
        found = list(read_libraries(archive, memory_mib))
        libraries = tuple(sorted((f for f in found if isinstance(f, Library)), key=lambda lib: lib.name))
        members = [m for m in archive.members if not m.is_directory]
        requires = tuple(headers(archive.metadata, "Requires-Dist"))
        external = tuple(headers(archive.metadata, "Requires-External"))
        needs = wheel_needs(libraries, requires, external)
        measured = measure(libraries, {n.library for n in needs} - system_libraries())
        return Inspection(
            wheel=wheel,
            distribution=archive.distribution,
            version=str(archive.version),
            tags=tuple(sorted(str(tag) for tag in archive.tags)),
            requires_python=next(iter(headers(archive.metadata, "Requires-Python")), ""),
            requires=requires,
            external=external,
            total=sum((Bytes(m.size, m.compressed_size) for m in members), Bytes()),
            parts=parts(members, libraries),
            libraries=libraries,
            data=data_files(members),
            needs=needs,
            rocm=rocm_evidence(archive, libraries),
            hip_symbols=hip_symbols(libraries),
            platform=measured.policy.tag if libraries else "any",
            platform_floor=tuple(str(b) for b in sorted(measured.blockers, key=_newest_first)),
            unreadable=tuple(sorted(f for f in found if not isinstance(f, Library))),
        )


def _newest_first(blocker: Blocker) -> tuple[bool, tuple[int, ...], Blocker]:
    """The order of what forbids an older platform: the C library's newest symbols first."""
    number = tuple(-int(part) for part in re.findall(r"\d+", blocker.version))
    return not blocker.version.startswith("GLIBC_"), number, blocker
