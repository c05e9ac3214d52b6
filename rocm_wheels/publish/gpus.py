"""Which GPUs a wheel serves, for the page that people read."""

from __future__ import annotations

from pathlib import Path

from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.gpu.datafiles import targets_of
from rocm_wheels.inspect.model import Library
from rocm_wheels.inspect.read import read_libraries
from rocm_wheels.publish.manifest import read_manifest
from rocm_wheels.wheel import WheelArchive

_MEMORY_MIB = 256


def wheel_archs(wheel: Path) -> tuple[str, ...]:
    """GPU targets that the wheel serves; empty when it has nothing for any or when that cannot be told.

    Taken from the manifest beside the wheel, else from the device code of its libraries: a target counts only if every
    library with device code serves it. A wheel without libraries serves what its data files are for.
    """
    if found := read_manifest(wheel).get("archs"):
        return tuple(sorted(str(arch) for arch in found))
    try:
        with WheelArchive.open(wheel) as archive:
            libraries = [each for each in read_libraries(archive, _MEMORY_MIB) if isinstance(each, Library)]
            names = [member.name for member in archive.members]
    except RocmWheelsError:
        return ()  # a page is no judge: verify explains what is wrong with this wheel
    if not libraries:
        return tuple(sorted(frozenset().union(*map(targets_of, names))))
    served = [frozenset.intersection(*(b.archs for b in each.bundles)) for each in libraries if each.bundles]
    return tuple(sorted(frozenset.intersection(*served))) if served else ()
