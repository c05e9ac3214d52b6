"""Why this user can or cannot compute on a GPU: driver, device nodes, groups, containers, variables."""

from __future__ import annotations

import errno
import grp
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.gpu.cards import all_cards
from rocm_wheels.gpu.detect import Gpu

# Variables that hide cards or change what they claim to be (ROCr and HIP documentation).
_VARIABLES = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HSA_OVERRIDE_GFX_VERSION",
)


@dataclass(frozen=True)
class Obstacle:
    """Something between this user and a GPU: what is wrong, and the command or setting that mends it."""

    what: str
    remedy: str


def obstacles(gpu: Gpu, root: Path = Path("/")) -> tuple[Obstacle, ...]:
    """What keeps this user from computing on ``gpu``; nothing when it can be used."""
    if gpu.driver and gpu.driver != "amdgpu":
        return (Obstacle(f"bound to the driver {gpu.driver}", _driver_remedy(gpu)),)
    if not gpu.driver and gpu.node is None:
        return (Obstacle("no driver is bound to it", "load the kernel's: modprobe amdgpu; dmesg says why it fails"),)
    found = [each for node in _nodes(gpu) if (each := _closed(root / "dev" / node, root))]
    if gpu.node is None and not found:
        found.append(_without_node(root))
    if not gpu.gfx:
        found.append(Obstacle("its target cannot be read", "a newer kernel names it; rocminfo shows what ROCm thinks"))
    elif gpu.gfx.partition(":")[0] not in {c.gfx for c in all_cards()}:
        what = f"{gpu.gfx} is not known to this tool's table, so that nothing is said about what runs on it"
        found.append(Obstacle(what, "a newer version of this tool"))
    return tuple(found)


def notes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Set variables that decide which cards a program sees, or what they pretend to be."""
    return tuple(f"{name}={environ[name]} is set" for name in _VARIABLES if name in environ)


def driver_version(root: Path = Path("/")) -> str:
    """The amdgpu driver: its own version if it was installed beside the kernel, else the kernel's; "" for none."""
    module = root / "sys/module/amdgpu"
    for path, form in ((module / "version", "amdgpu {}"), (root / "proc/sys/kernel/osrelease", "amdgpu of Linux {}")):
        if module.is_dir() and path.is_file():
            return form.format(path.read_text("ascii").strip())
    return ""


def _driver_remedy(gpu: Gpu) -> str:
    if gpu.driver == "vfio-pci":
        return "it is set aside for virtual machines; remove it from the vfio-pci ids and boot again"
    return (
        f"{gpu.driver} cannot compute; boot with amdgpu, for old cards with radeon.cik_support=0 amdgpu.cik_support=1"
    )


def _nodes(gpu: Gpu) -> tuple[str, ...]:
    return ("kfd", f"dri/{gpu.render}") if gpu.render else ("kfd",)


def _closed(path: Path, root: Path) -> Obstacle | None:
    """Why ``path`` cannot be opened for reading and writing. Opening is harmless, and the only true test: permission
    bits say nothing of access lists and device cgroups.
    """
    shown = f"/{path.relative_to(root)}"
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return _absent(shown, root)
        if error.errno == errno.EACCES:
            return _forbidden(path, shown, root)
        if error.errno == errno.EPERM:
            return Obstacle(f"{shown}: the container's device rules forbid it", _container_remedy(shown))
        return Obstacle(f"{shown} does not open: {os.strerror(error.errno or 0)}", "dmesg | grep -i -e amdgpu -e kfd")
    return None


def _absent(shown: str, root: Path) -> Obstacle:
    if in_container(root):
        return Obstacle(f"{shown} is not in this container", _container_remedy(shown))
    what = f"{shown} does not exist"
    return Obstacle(what, "the kernel has amdgpu without it: modprobe amdgpu, and a kernel with CONFIG_HSA_AMD")


def _forbidden(path: Path, shown: str, root: Path) -> Obstacle:
    status = path.stat()
    group = _group(status.st_gid)
    mine = ", ".join(sorted(_group(gid) for gid in os.getgroups())) or "none"
    what = (
        f"{shown} belongs to {_user(status.st_uid)}:{group} with mode {status.st_mode & 0o777:04o}; you are in {mine}"
    )
    if in_container(root):
        return Obstacle(what, f"start the container with --group-add {status.st_gid}")
    return Obstacle(what, f"sudo usermod -aG {group} {_user(os.getuid())}, then log in again")


def _without_node(root: Path) -> Obstacle:
    remedy = "a newer kernel, or a slot with PCIe atomics: dmesg | grep -i kfd says which"
    if in_container(root):
        remedy = f"{_container_remedy('/dev/kfd')}; outside, dmesg | grep -i kfd says more"
    return Obstacle("the kernel's compute driver does not list it (unsupported there)", remedy)


def _container_remedy(shown: str) -> str:
    device = "/dev/dri" if shown.startswith("/dev/dri") else shown
    return f"start the container with --device {device}"


def in_container(root: Path = Path("/")) -> bool:
    """Whether ``root`` is that of a docker or podman container."""
    return any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
