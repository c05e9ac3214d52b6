"""Where build commands run: in containers by docker or podman, or on the host.

``find_engine`` gives the one that works here. Containers die with the process that started them: they are removed on
Ctrl-C and SIGTERM, end by themselves when this process is killed (see :mod:`rocm_wheels.build.process`), and what is
left all the same, after a crash of the engine, goes at the next start.
"""

from __future__ import annotations

import shutil

from rocm_wheels.build.container import ENGINES, ContainerEngine
from rocm_wheels.build.host import HostEngine
from rocm_wheels.build.runner import Engine, Mount
from rocm_wheels.build.setup import ensure_packages
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import (
    EngineBroken,
    EnginePermission,
    EngineTooOld,
    NoEngine,
    RocmWheelsError,
    SettingError,
    nearest,
)

__all__ = ["ContainerEngine", "Engine", "HostEngine", "Mount", "find_engine"]


def find_engine(name: str = "", *, console: Console, settings: Settings) -> Engine:
    """The engine called ``name`` (docker, podman, none), or the first that works when it is empty.

    As root on Debian or Ubuntu podman is installed when no engine is there. Raises :class:`NoEngine`,
    :class:`EnginePermission`, :class:`EngineTooOld`, :class:`EngineBroken` or :class:`PackagesMissing`.
    """
    if name == "none":
        return HostEngine(console)
    if name and name not in ENGINES:
        raise SettingError(f"no engine is called {name!r}", remedy=nearest(name, [*ENGINES, "none"]))
    if name == "docker" and not shutil.which(name):
        raise NoEngine("docker is not installed", remedy="apt-get install docker.io, or --engine podman")
    problems: list[RocmWheelsError] = []
    for candidate in filter(shutil.which, [name] if name else ENGINES):
        try:
            return ContainerEngine(candidate, console=console, cache=settings.cache)
        except (EnginePermission, EngineTooOld, EngineBroken) as error:
            problems.append(error)
    if name == "docker" or shutil.which("podman"):
        raise problems[0]
    for problem in problems:  # a docker client without its daemon is no engine
        console.line(f"• {problem.message}")
    ensure_packages("engine", console)
    return ContainerEngine("podman", console=console, cache=settings.cache)
