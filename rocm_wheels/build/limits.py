"""What a container engine must be told to start containers on this machine, found out by trying.

Machines differ: hybrid cgroups that crun refuses, no iptables for a bridge network, limits that nobody may raise
(podman 4.3 and docker set RLIMIT_NOFILE and RLIMIT_NPROC above what an unprivileged sandbox allows). Each *measure*
below answers one of these; the probe keeps the ones without which a container does not start.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import EngineBroken

HOST_NETWORK = ("--network", "host")


@dataclass(frozen=True)
class Measure:
    """Options that make containers start on some machines: ``engine`` ones go before the subcommand, ``command``
    ones to ``run`` and ``build``."""

    name: str
    engine: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


# Yields a function that starts a container with the measures given and returns what the engine said, "" if it worked.
Probe = Callable[[], AbstractContextManager[Callable[[Sequence[Measure]], str]]]


def measures(engine: str) -> tuple[Measure, ...]:
    """The measures that could help ``engine`` (``docker`` or ``podman``) here."""
    found = [Measure("host-network", command=HOST_NETWORK), Measure("ulimits", command=_ulimits())]
    if engine == "podman" and shutil.which("runc"):
        found.append(Measure("runc", engine=("--runtime", "runc")))
    return tuple(found)


def _ulimits() -> tuple[str, ...]:
    """This process's own hard limits, capped: more can be refused, and no compile needs more."""
    options: list[str] = []
    for name, number, cap in (("nofile", resource.RLIMIT_NOFILE, 65536), ("nproc", resource.RLIMIT_NPROC, 4096)):
        hard = resource.getrlimit(number)[1]
        value = cap if hard == resource.RLIM_INFINITY else min(hard, cap)
        options += ["--ulimit", f"{name}={value}:{value}"]
    return tuple(options)


def needed(available: Sequence[Measure], fails: Callable[[Sequence[Measure]], str]) -> tuple[tuple[Measure, ...], str]:
    """The smallest part of ``available`` with which ``fails`` gives "", and the error when not even all do."""
    if not fails(()):
        return (), ""
    if error := fails(available):
        return (), error
    kept = list(available)
    for measure in available:
        fewer = [other for other in kept if other is not measure]
        if not fails(fewer):
            kept = fewer
    return tuple(kept), ""


def load_measures(engine: str, version: str, cache: Path, probe: Probe) -> tuple[Measure, ...]:
    """The measures that ``engine`` needs here, from the last probe under ``cache`` or from a new one.

    Raises :class:`EngineBroken` when no container starts whatever is done.
    """
    available = measures(engine)
    memory = cache / "engine" / f"{engine}.json"
    key = [engine, version, os.getuid(), _boot_id(), repr(available), os.environ.get("CONTAINERS_CONF", "")]
    try:
        known = json.loads(memory.read_text("utf-8"))
        if known["key"] == key:
            return tuple(measure for measure in available if measure.name in known["needed"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no probe yet, or a file that something else damaged: probe again
    with probe() as fails:
        found, error = needed(available, fails)
    if error:
        raise EngineBroken(
            f"{engine} starts no container here, also not with {', '.join(m.name for m in available)}: {error}",
            remedy=f"the message is the engine's own: see that `{engine} run` works, or choose another by --engine",
        )
    memory.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"key": key, "needed": [measure.name for measure in found]})
    partial = memory.with_suffix(f".{os.getpid()}")
    partial.write_text(text, "utf-8")
    partial.replace(memory)
    return found


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def write_host_rootfs(path: Path, commands: Iterable[str] = ("sh",)) -> None:
    """Write a tar with ``commands`` of this machine and the libraries they load: the smallest image that runs.

    The probe needs an image before any is there, with or without a network.
    """
    with tarfile.open(path, "w") as tar:
        for folder in ("dev", "etc", "proc", "sys", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        files: dict[str, Path] = {}
        for command in commands:
            binary = shutil.which(command)
            if binary is None:
                raise FileNotFoundError(command)
            files[f"bin/{command}"] = Path(binary)
            listing = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False).stdout
            files |= {name.lstrip("/"): Path(name) for name in re.findall(r"(/\S+) \(0x", listing)}
        for name, source in sorted(files.items()):
            data = source.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
