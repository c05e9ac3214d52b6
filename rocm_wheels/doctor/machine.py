"""Disk, memory, keys and GPU of this machine."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rocm_wheels.build.memory import available_memory, default_jobs
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.doctor import containers
from rocm_wheels.doctor.model import Result, State
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.gpu.access import obstacles
from rocm_wheels.gpu.detect import detect
from rocm_wheels.release import Cost, load_matrix

GB = 1_000_000_000
_FAT_WHEEL = 3 * GB  # about what a PyTorch wheel with ROCm in it takes
_SIGNED_BY = re.compile(r"signed-by[:=]\s*(/[^\s\]]+)", re.IGNORECASE)
_EXPIRES_SOON = 30 * 86400


@dataclass(frozen=True)
class Place:
    """A directory that the run writes to, and the bytes that it may need there."""

    name: str
    path: Path
    bytes: int


def places(settings: Settings, store: Path | None) -> tuple[Place, ...]:
    """Where a run for one Python writes, and how much by the measured cost of its release.

    The tree, its source and compiler cache; the wheel, which is there three times while it is repaired; the image and
    as much again for a layer while it is written.
    """
    cost = _cost(settings)
    tree, wheel = (int(cost.disk * GB), _FAT_WHEEL) if cost else (GB, GB // 3)
    found = [
        Place("cache_dir", settings.cache, tree + 2 * GB),
        Place("dist_dir", Path(settings.dist_dir).expanduser().resolve(), 3 * wheel),
        Place("TMPDIR", Path(os.environ.get("TMPDIR") or tempfile.gettempdir()), wheel),
    ]
    return (*found, *([Place("images", store, 12 * GB)] if store else []))


def _cost(settings: Settings) -> Cost | None:
    """What the release was measured to take in its image; None for one too small to measure, or unknown."""
    matrix = load_matrix()
    try:
        return matrix.release(settings.release).on(matrix.image(settings.image)).cost
    except RocmWheelsError:  # another check says so
        return None


def check_disk(settings: Settings) -> Iterator[Result]:
    """One line per file system: what all that goes there needs, and what is free."""
    mounts: dict[int, list[Place]] = {}
    for place in places(settings, containers.storage(settings)):
        problem = _unwritable(place)
        if problem:
            yield problem
        mounts.setdefault(_existing(place.path).stat().st_dev, []).append(place)
    for here in mounts.values():
        yield _room(here)


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _unwritable(place: Place) -> Result | None:
    existing = _existing(place.path)
    if not existing.is_dir():
        return Result(
            "disk", State.FAILED, f"{place.name}: {existing} is not a directory", f"set {place.name} elsewhere"
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        if place.name == "images":  # the engine's own business
            return None
        return Result("disk", State.FAILED, f"{place.name}: {existing} is not writable for you", f"set {place.name}")
    if existing != place.path and place.name == "TMPDIR":
        make = partial(_make_directory, place.path)
        return Result("disk", State.FAILED, f"TMPDIR: {place.path} does not exist", f"mkdir -p {place.path}", make)
    return None


def _make_directory(path: Path, console: Console) -> None:
    path.mkdir(parents=True, exist_ok=True)


def _room(here: Sequence[Place]) -> Result:
    """The file system of ``here`` against the sum of what goes there."""
    free = shutil.disk_usage(_existing(here[0].path)).free
    needed = sum(place.bytes for place in here)
    names = " + ".join(place.name for place in here)
    found = f"{names} ({here[0].path}): {free / GB:.0f} GB free, up to {needed / GB:.0f} GB needed"
    inodes = os.statvfs(_existing(here[0].path))
    if inodes.f_files and inodes.f_favail < 200_000:
        return Result(
            "disk", State.FAILED, f"{names}: {inodes.f_favail} inodes free, a tree takes 200000", "other disk"
        )
    if free >= needed:
        return Result("disk", State.OK, found)
    remedy = "remove what is old (`invoke image --prune`), or set cache_dir, dist_dir or TMPDIR to another disk"
    least = max(place.bytes for place in here)
    return Result("disk", State.WARNING if free >= least else State.FAILED, found, remedy)


def check_memory(settings: Settings) -> Iterator[Result]:
    """Compile jobs against memory and cores, of the container's limits if they are smaller."""
    cost = _cost(settings)
    per_job = int(cost.job_memory * GB) if cost else 0
    free, fitting = available_memory(), default_jobs(per_job) if per_job else default_jobs()
    jobs = settings.jobs or fitting
    found = f"{jobs} compile jobs, {free / GB:.1f} GB of memory free, {len(os.sched_getaffinity(0))} cores"
    if free < per_job:
        remedy = "end other programs, add swap, or raise the container's limit"
        yield Result("memory", State.FAILED, f"{found}: one file takes {per_job / GB:.1f} GB", remedy)
    elif jobs > fitting:
        yield Result("memory", State.WARNING, f"{found}: they allow {fitting}", f"set jobs to {fitting}, or to 0")
    else:
        yield Result("memory", State.OK, found)


def check_keys(settings: Settings, apt: Path = Path("/etc/apt")) -> Iterator[Result]:
    """Keys that apt checks its repositories by: expired, or about to."""
    files = _keyrings(apt)
    if not files or not shutil.which("gpg"):
        state = State.UNKNOWN if files else State.OK
        yield Result("keys", state, f"{len(files)} keyrings of apt, no gpg to read them" if files else "none in use")
        return
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-gpg-") as home:
        try:
            expiries = {file: _expiry(file, Path(home)) for file in files}
        except subprocess.TimeoutExpired:
            yield Result("keys", State.UNKNOWN, f"{len(files)} keyrings of apt, gpg did not answer in time")
            return
    bad = {file: left for file, left in expiries.items() if left < _EXPIRES_SOON}
    for file, left in bad.items():
        when = "can be read by gpg in none of its keys" if left == -math.inf else f"expires in {left / 86400:.0f} days"
        found = f"{file} has expired {-left / 86400:.0f} days ago" if -math.inf < left < 0 else f"{file} {when}"
        remedy = f"fetch the key again from its publisher into {file}"
        yield Result("keys", State.FAILED if left < 0 else State.WARNING, found, remedy)
    if not bad:
        yield Result("keys", State.OK, f"{len(files)} keyrings of apt, none expires within a month")


def _keyrings(apt: Path) -> tuple[Path, ...]:
    """The keyrings that sources name by Signed-By, and those that hold for every source."""
    sources = [path for path in (apt / "sources.list", *(apt / "sources.list.d").glob("*")) if path.is_file()]
    named = [name for path in sources for name in _SIGNED_BY.findall(path.read_text("utf-8", "replace"))]
    everywhere = (apt / "trusted.gpg.d").glob("*.[ga][ps][gc]")
    return tuple(sorted({path for path in (*map(Path, named), *everywhere) if path.is_file()}))


def _expiry(file: Path, home: Path) -> float:
    """Seconds until the last of a keyring's keys expires: inf for never, -inf when it holds none."""
    command = ["gpg", "--homedir", str(home), "--batch", "--show-keys", "--with-colons", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=5)
    rows = [line.split(":") for line in done.stdout.splitlines() if line.startswith("pub:")]
    return max((float(row[6] or "inf") - time.time() for row in rows), default=-math.inf)


def check_gpu(settings: Settings, root: Path = Path("/")) -> Iterator[Result]:
    """GPUs of this machine and what is in the way of using them; a build needs none."""
    found = detect(root)
    for gpu in found:
        name = f"{gpu.product or gpu.device_id or gpu.pci} ({gpu.gfx or 'target unknown'})"
        bad = obstacles(gpu, root)
        for each in bad:
            yield Result("gpu", State.WARNING, f"{name}: {each.what}", each.remedy)
        if not bad:
            yield Result("gpu", State.OK, f"{name} can be used")
    if not found:
        yield Result("gpu", State.OK, "no AMD GPU: wheels are built and checked here, their kernels run elsewhere")
