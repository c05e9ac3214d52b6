"""How much memory a build may use, how many compilers that feeds, and whether the kernel killed one for it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

# Without a measured figure of the release; a translation unit of PyTorch was measured at up to 1.4 GB.
BYTES_PER_JOB = 1_600_000_000
# What the rest of the machine keeps, and the linker's share: one link runs beside the compilers.
_BYTES_RESERVED = 1_000_000_000
_CGROUPS = Path("/sys/fs/cgroup")


def available_memory(*, proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> int:
    """Bytes that this process may still take: free on the machine, and under every limit of its cgroups (v1, v2)."""
    return max(0, min([psutil.virtual_memory().available, *_left_by_cgroups(proc, cgroups)]))


def default_jobs(bytes_per_job: int = BYTES_PER_JOB) -> int:
    """Compile jobs that cores and memory allow; at least one."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, (available_memory() - _BYTES_RESERVED) // bytes_per_job))


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Processes that the kernel has killed for memory since boot, for a limit of a cgroup among them."""
    found = re.search(r"^oom_kill (\d+)$", vmstat.read_text("ascii"), re.MULTILINE)
    return int(found[1]) if found else 0


def _left_by_cgroups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Limit less use of this process's cgroup and of every one above it that has a limit."""
    for line in (proc / "self" / "cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots = [root for root in (cgroups, cgroups / "unified") if (root / "cgroup.controllers").is_file()]
            names = "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            roots, names = [cgroups / "memory"], ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        for root in roots:
            place = root / path.lstrip("/")
            for folder in (place, *place.parents):
                if folder.is_relative_to(root) and (left := _left(folder, *names)) is not None:
                    yield left


def _left(folder: Path, limit: str, use: str) -> int | None:
    """None without a limit. A cgroup's use includes caches that the kernel would give back."""
    try:
        allowed, used = (folder / limit).read_text("ascii").strip(), int((folder / use).read_text("ascii"))
        cache = re.search(r"^(?:total_)?inactive_file (\d+)$", (folder / "memory.stat").read_text("ascii"), re.M)
    except (OSError, ValueError):
        return None
    return int(allowed) - used + (int(cache[1]) if cache else 0) if allowed.isdigit() else None
