"""Is there a container engine that this user may use?"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from rocm_wheels.build.container import ENGINES
from rocm_wheels.build.image import check_host_tools
from rocm_wheels.build.setup import PURPOSES, ensure_packages
from rocm_wheels.config import Settings
from rocm_wheels.diagnose import diagnose_text
from rocm_wheels.doctor.model import Result, State
from rocm_wheels.errors import HostToolMissing

_SECONDS = 3  # a hung daemon must not take the time of the other checks


@dataclass(frozen=True)
class Info:
    """What an engine says of itself: ``problem`` is "" when it works, ``storage`` where it keeps images."""

    name: str
    version: str = ""
    rootless: bool = False
    storage: str = ""
    problem: str = ""
    remedy: str = ""


def engines(settings: Settings) -> tuple[Info, ...]:
    """Every engine that is installed and allowed by the settings."""
    wanted = [settings.engine] if settings.engine in ENGINES else list(ENGINES)
    installed = [name for name in wanted if shutil.which(name)]
    with ThreadPoolExecutor(len(ENGINES)) as pool:
        return tuple(pool.map(ask, installed))


def ask(name: str) -> Info:
    """``NAME info``, which needs the same rights as starting a container and changes nothing."""
    command = [name, "info", "--format", "json" if name == "podman" else "{{json .}}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return Info(name, problem=f"`{name} info` gives no answer within {_SECONDS} s", remedy="restart its service")
    except OSError as error:
        return Info(name, problem=f"{name} cannot be run: {error.strerror}", remedy=f"install {name} again")
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = {}
    errors = done.stderr.strip() or " ".join(said.get("ServerErrors") or ())
    if done.returncode or said.get("ServerErrors") or not said:
        return _refused(name, errors or f"exit code {done.returncode}")
    return _podman(said) if name == "podman" else _docker(said)


def _refused(name: str, errors: str) -> Info:
    """The engine's own words, with the remedy of the catalogue of faults."""
    finding = next(iter(diagnose_text(errors).findings), None)
    return Info(
        name, problem=f"{name}: {errors.splitlines()[-1]}", remedy=finding.remedy if finding else f"run `{name} info`"
    )


def _podman(said: dict[str, Any]) -> Info:
    host, store = said.get("host", {}), said.get("store", {})
    rootless = bool(host.get("security", {}).get("rootless"))
    return Info("podman", said.get("version", {}).get("Version", ""), rootless, store.get("graphRoot", ""))


def _docker(said: dict[str, Any]) -> Info:
    rootless = any("rootless" in option for option in said.get("SecurityOptions") or ())
    return Info("docker", said.get("ServerVersion", ""), rootless, said.get("DockerRootDir", ""))


def check_engine(settings: Settings) -> Iterator[Result]:
    """One line per engine; it fails when none of them can be used."""
    if settings.engine == "none":
        yield _host_tools()
        return
    found = engines(settings)
    usable = [info for info in found if not _why_not(info)]
    for info in found:
        if why := _why_not(info):
            yield Result("engine", State.WARNING if usable else State.FAILED, why, info.remedy)
        else:
            rootless = ", rootless" if info.rootless else ""
            yield Result("engine", State.OK, f"{info.name} {info.version}{rootless}, images in {info.storage}")
    if not found:
        _, packages = PURPOSES["engine"]
        remedy = f"apt-get install {' '.join(packages)}"
        missing = f"{settings.engine or ' or '.join(ENGINES)} is not installed"
        yield Result("engine", State.FAILED, missing, remedy, lambda console: ensure_packages("engine", console))


def _why_not(info: Info) -> str:
    if info.problem:
        return info.problem
    try:
        if Version(info.version).release[:2] >= ENGINES[info.name]:
            return ""
    except InvalidVersion:
        pass
    return f"{info.name} {info.version} is older than {'.'.join(map(str, ENGINES[info.name]))}"


def _host_tools() -> Result:
    try:
        check_host_tools()
    except HostToolMissing as error:
        return Result("engine", State.FAILED, error.message, error.remedy)
    return Result("engine", State.OK, "none: the build uses this machine's own tools")


def storage(settings: Settings) -> Path | None:
    """Where the first usable engine keeps images, when that is on this machine."""
    for info in engines(settings):
        if not _why_not(info) and info.storage and Path(info.storage).is_dir():
            return Path(info.storage)
    return None
