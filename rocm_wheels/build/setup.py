"""Debian packages that the builder needs on this machine: installed as root, otherwise named in one command."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

from rocm_wheels.console import Console
from rocm_wheels.errors import PackagesMissing

# netavark, aardvark-dns: podman's network; uidmap, fuse-overlayfs: rootless; runc: hybrid cgroups, refused by crun.
_ENGINE = ("podman", "runc", "netavark", "aardvark-dns", "uidmap", "fuse-overlayfs")
PURPOSES = {
    "engine": ("a container engine", _ENGINE),
    "tests": (
        "what the tests compile and serve with",
        ("gcc", "libc6-dev", "git", "unzip", "nginx-light", "redis-server", "rsync"),
    ),
    "browser": ("a browser", ("chromium", "fonts-dejavu-core")),  # Ubuntu has it as a snap only
    "base": ("a base image made from an apt mirror", ("mmdebstrap", "debian-archive-keyring")),
}


def ensure_packages(purpose: str, console: Console) -> None:
    """Install the packages of ``purpose`` (a key of :data:`PURPOSES`) that are missing; nothing when none is.

    Raises :class:`PackagesMissing` with the exact command when this is not root or not Debian or Ubuntu, or with
    apt's own words when apt fails.
    """
    what, wanted = PURPOSES[purpose]
    missing = missing_packages(wanted)
    if not missing:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    command = f"apt-get update && {' '.join(install)}"
    if not _is_debian():
        raise PackagesMissing(
            f"this machine has no {what.removeprefix('a ')}, and only Debian and Ubuntu are set up automatically",
            remedy=f"install {' '.join(missing)} (Debian's names) by this system's package manager",
        )
    if os.geteuid() != 0:
        raise PackagesMissing(f"{what} needs {' '.join(missing)}", remedy=f"sudo sh -c '{command}'")
    with console.step(f"installing {what}: {' '.join(missing)}"):
        for argv in (["apt-get", "update"], install):
            _apt(argv, command)


def missing_packages(names: tuple[str, ...]) -> list[str]:
    """Those of ``names`` that dpkg does not have installed."""
    if shutil.which("dpkg-query") is None:
        return list(names)
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\\n", *names]
    shown = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")
    installed = {line.split()[0] for line in shown if line.endswith(" installed")}
    return [name for name in names if name not in installed]


def _is_debian() -> bool:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    family = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return "debian" in family and shutil.which("apt-get") is not None


def _apt(argv: list[str], command: str) -> None:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(argv, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith(("E:", "dpkg: error"))]
        raise PackagesMissing(
            f"`{' '.join(argv[:2])}` failed with exit code {result.returncode}: {' '.join(errors) or result.stderr}",
            remedy=f"mend apt, then: {command}",
        )
