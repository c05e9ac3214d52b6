"""The record of repairs inside a wheel: ``rocm-wheels-repair.json`` of .dist-info.

``{"format": 1, "repairs": [...]}``, the newest last. Each repair has its mode, the versions of the tools, the measured
platform and what forbids an older one, the providers of what stays outside with the versions that fit, what was
grafted (member, package, version, sha256), the directories of grafted data and the files that were edited, with
their search path now. Paths of the build host are not in it. Verify, publish and
 ``invoke layers`` may read it; nothing depends on it.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rocm_wheels.errors import BrokenWheel
from rocm_wheels.repair.model import RepairPlan
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.codec import Packed

MANIFEST = "rocm-wheels-repair.json"
_FORMAT = 1
_TOOLS = ("rocm-wheels", "auditwheel", "patchelf")


def read_repairs(archive: WheelArchive) -> list[dict[str, Any]]:
    """The repairs that a wheel went through, oldest first; raises :class:`BrokenWheel` for a damaged record."""
    name = f"{archive.dist_info}/{MANIFEST}"
    if name not in archive:
        return []
    try:
        document = json.loads(archive.read(name))
        repairs = document["repairs"] if document["format"] == _FORMAT else None
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenWheel(f"{archive.path.name}: {name} is no record of repairs: {error}") from error
    if not isinstance(repairs, list):
        raise BrokenWheel(f"{archive.path.name}: {name} has a format that this version does not know")
    return repairs


def manifest(plan: RepairPlan, archive: WheelArchive, packed: Mapping[str, Packed]) -> bytes:
    """The record with the repair of ``plan`` at its end."""
    repairs = [*read_repairs(archive), _repair(plan, packed)]
    return (json.dumps({"format": _FORMAT, "repairs": repairs}, indent=1, sort_keys=True) + "\n").encode("utf-8")


def _repair(plan: RepairPlan, packed: Mapping[str, Packed]) -> dict[str, Any]:
    folders = Counter(graft.member.rpartition("/")[0] for graft in plan.data)
    return {
        "mode": plan.mode,
        "tools": {name: importlib.metadata.version(name) for name in _TOOLS},
        "platform": plan.measured.policy.tag,
        "forbidden_below_by": [str(blocker) for blocker in plan.measured.blockers],
        "providers": plan.providers(),
        "grafts": [
            {"member": g.member, "package": g.package, "version": g.version, "sha256": packed[g.member].digest}
            for g in plan.grafts
        ],
        "data": dict(sorted(folders.items())),
        "edited": {e.member: e.rpath for e in plan.elves if e.edit},
    }
