"""AMD's own base: a wheel thin over ``rocm[libraries]``, the SDK wheels of ROCm/TheRock, in the place of our layers.

From its documentation and from pytorch's `.ci/manywheel`: the requirement ``rocm[libraries]==RELEASE`` and the places
``_rocm_sdk_core/lib``, ``_rocm_sdk_core/lib/rocm_sysdeps/lib`` and ``_rocm_sdk_libraries/lib``. Of the SONAMEs in there
only HIP's is known to follow the release; the others are not compared, and no SDK wheel was loaded by us.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from packaging.version import InvalidVersion, Version

from rocm_wheels.console import Console
from rocm_wheels.errors import BaseMismatch, NoRocm, UsageError
from rocm_wheels.layers.split import read_split
from rocm_wheels.layers.texts import without_rocm_externals
from rocm_wheels.repair import RepairOptions, apply_plan, plan_repair
from rocm_wheels.repair.providers import rocm_major
from rocm_wheels.wheel import WheelArchive, WheelWriter
from rocm_wheels.wheel.metadata import with_headers
from rocm_wheels.wheel.record import Row


def over_sdk(wheel: Path, release: str, dest: Path, console: Console, *, memory_mib: int = 512) -> Path:
    """Write ``wheel`` into ``dest``, requiring AMD's SDK wheels of exactly ``release`` and finding ROCm in them.

    Raises :class:`NoRocm` when it needs no ROCm, :class:`BaseMismatch` when it carries one of its own or was built for
    another major release than ``release``, and :class:`UsageError` for a release that is no version.
    """
    try:
        wanted = Version(release)
    except InvalidVersion:
        raise UsageError(f"{release!r} is no release of ROCm", remedy="such as --sdk 7.14.0") from None
    split = read_split(wheel, memory_mib)
    if split.layers:
        raise BaseMismatch(
            f"{wheel.name} carries a ROCm of its own, which would be a second copy in the process",
            remedy="give the wheel as it was built, or split it over our own base: invoke layers without --sdk",
        )
    major = rocm_major(split.needs)
    if not split.needs:
        raise NoRocm(f"{wheel.name} neither carries nor needs ROCm", remedy="publish it as it is")
    if major != wanted.major:
        raise BaseMismatch(
            f"{wheel.name} was built for ROCm {major or 'of an unknown release'} (its needs: "
            f"{', '.join(sorted(split.needs))}), the SDK would be {release}",
            remedy="build it against that release, or name the SDK that fits",
        )
    dest.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rocm-layers-", dir=dest) as scratch:
        plan = plan_repair(wheel, RepairOptions(mode="thin"), memory_mib=memory_mib)
        thin = apply_plan(plan, Path(scratch), console, memory_mib=memory_mib)
        return _requiring(thin, f"rocm[libraries]=={release}", dest / thin.name)


def _requiring(thin: Path, requirement: str, path: Path) -> Path:
    """The same wheel with one requirement more, and without the lines that left ROCm to the user."""
    with WheelArchive.open(thin) as archive, WheelWriter(path) as writer:
        rows = {row.path: row for row in archive.record}
        metadata = f"{archive.dist_info}/METADATA"
        for member in archive.members:
            if not member.is_directory and member.name not in (metadata, f"{archive.dist_info}/RECORD"):
                writer.copy(archive, member, rows.get(member.name) or Row(member.name, "", None))
        text = with_headers(without_rocm_externals(archive.metadata), "Requires-Dist", [requirement])
        writer.add(metadata, text.encode("utf-8"))
    return path
