"""Which GPUs a wheel serves, for the page that people read."""

from __future__ import annotations

from pathlib import Path

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.offload import archs
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.publish.manifest import read_manifest
from rocm_wheels.wheel import WheelArchive

_MOST = 256 << 20


def wheel_archs(wheel: Path) -> tuple[str, ...]:
    """GPU targets that the wheel has code for; empty when it has none or when that cannot be told.

    Taken from the manifest beside the wheel, else from the device code of its libraries: a target counts only
    if every library with device code serves it. A library over 256 MiB is not unpacked for the sake of a page.
    """
    if found := read_manifest(wheel).get("archs"):
        return tuple(sorted(str(arch) for arch in found))
    try:
        return _from_libraries(wheel)
    except RocmWheelsError:
        return ()  # a page is no judge: verify explains what is wrong with this wheel


def _from_libraries(wheel: Path) -> tuple[str, ...]:
    found: list[frozenset[str]] = []
    with WheelArchive.open(wheel) as archive:
        for member in archive.members:
            if ".so" not in member.name.rpartition("/")[2]:
                continue
            if member.size > _MOST:
                return ()
            content = archive.read(member)
            if content.startswith(b"\x7fELF") and (served := archs(ElfFile.parse(content, member.name))):
                found.append(served)
    return tuple(sorted(frozenset.intersection(*found))) if found else ()
