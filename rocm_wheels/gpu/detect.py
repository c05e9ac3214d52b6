"""The AMD GPUs of this machine, read from sysfs; rocminfo adds names and target features where it is there.

A card that cannot be read hides none of the others: each source is asked card by card, and what it does not say stays
empty. `root` is the file system to look at, so that tests lay one of their own.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rocm_wheels.gpu.cards import Card, card

_AMD = 0x1002
# PCI base classes of display controllers and of processing accelerators (Instinct).
_CLASSES = (0x03, 0x12)

# Version of the graphics block → target, which follows other numbers (linux drivers/gpu/drm/amd/amdkfd/kfd_device.c,
# kgd2kfd_probe; every target not listed has the number of its block).
_BLOCKS = {
    (9, 0, 1): "gfx900", (9, 1, 0): "gfx902", (9, 2, 2): "gfx902", (9, 2, 1): "gfx904", (9, 3, 0): "gfx90c",
    (9, 4, 0): "gfx906", (9, 4, 1): "gfx908", (9, 4, 2): "gfx90a", (9, 4, 3): "gfx942", (9, 4, 4): "gfx942",
    (9, 5, 0): "gfx950", (10, 1, 10): "gfx1010", (10, 1, 2): "gfx1011", (10, 1, 1): "gfx1012", (10, 1, 3): "gfx1013",
    (10, 1, 4): "gfx1013", (10, 3, 0): "gfx1030", (10, 3, 2): "gfx1031", (10, 3, 4): "gfx1032", (10, 3, 1): "gfx1033",
    (10, 3, 5): "gfx1034", (10, 3, 3): "gfx1035", (10, 3, 6): "gfx1036", (10, 3, 7): "gfx1036", (11, 0, 0): "gfx1100",
    (11, 0, 3): "gfx1101", (11, 0, 2): "gfx1102", (11, 0, 1): "gfx1103", (11, 0, 4): "gfx1103", (11, 5, 0): "gfx1150",
    (11, 5, 1): "gfx1151", (11, 5, 2): "gfx1152", (12, 0, 0): "gfx1200", (12, 0, 1): "gfx1201",
}  # fmt: skip

_ROCMINFO_SECONDS = 30


@dataclass(frozen=True)
class Gpu:
    """One GPU; what nobody says of it is empty or None.

    ``pci`` is its bus address, ``gfx`` its target with the features that rocminfo knows, ``product`` what the machine
    calls it, ``driver`` the kernel driver bound to it, ``node`` its number in the KFD topology, ``render`` its render
    node below /dev/dri.
    """

    pci: str = ""
    gfx: str = ""
    product: str = ""
    device_id: int | None = None
    driver: str = ""
    node: int | None = None
    render: str = ""

    @property
    def card(self) -> Card:
        """What the table knows of its target."""
        return card(self.gfx)


def detect(root: Path = Path("/"), *, rocminfo: Path | None = None) -> tuple[Gpu, ...]:
    """All AMD GPUs below ``root``, in bus order; ``rocminfo`` is the program to ask as well, if there is one."""
    by_bus = {gpu.pci: gpu for gpu in _pci(root)}
    nodes = tuple(_kfd(root))  # a partitioned accelerator has several of one bus address
    found = [_merge(by_bus.get(node.pci, Gpu()), node) for node in nodes]
    found += (gpu for gpu in by_bus.values() if gpu.pci not in {node.pci for node in nodes})
    if rocminfo:
        said = _rocminfo(rocminfo)
        found = [_merge(gpu, said[gpu.node]) if gpu.node in said else gpu for gpu in found]
    return tuple(sorted(found, key=lambda g: (g.pci, -1 if g.node is None else g.node)))


def _merge(old: Gpu, new: Gpu) -> Gpu:
    """``old`` with everything that ``new`` knows."""
    return replace(old, **{key: value for key, value in vars(new).items() if value not in ("", None)})


def _text(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text("ascii").strip()
    return ""


def _number(path: Path) -> int | None:
    with suppress(ValueError):
        return int(_text(path), 0)
    return None


def _children(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _pci(root: Path) -> Iterator[Gpu]:
    names = _product_names(root)
    for device in _children(root / "sys/bus/pci/devices"):
        kind = _number(device / "class")
        if _number(device / "vendor") != _AMD or kind is None or kind >> 16 not in _CLASSES:
            continue
        device_id, revision = _number(device / "device"), _number(device / "revision")
        yield Gpu(
            pci=device.name,
            gfx=_from_block(device / "ip_discovery/die/0/GC/0"),
            product=_text(device / "product_name") or names.get((device_id, revision), ""),
            device_id=device_id,
            driver=(device / "driver").resolve().name if (device / "driver").exists() else "",
            render=next((p.name for p in _children(device / "drm") if p.name.startswith("renderD")), ""),
        )


def _from_block(folder: Path) -> str:
    version = tuple(_number(folder / name) for name in ("major", "minor", "revision"))
    return _BLOCKS.get(version, "")  # type: ignore[arg-type]


def _product_names(root: Path) -> Mapping[tuple[int | None, int | None], str]:
    """Product by PCI device id and revision, from the table that libdrm installs."""
    names: dict[tuple[int | None, int | None], str] = {}
    for line in _text(root / "usr/share/libdrm/amdgpu.ids").splitlines():
        if match := re.fullmatch(r"([0-9A-F]+),\s*([0-9A-F]+),\s*(\S.*)", line):
            names[int(match[1], 16), int(match[2], 16)] = match[3].strip()
    return names


def _kfd(root: Path) -> Iterator[Gpu]:
    for folder in _children(root / "sys/class/kfd/kfd/topology/nodes"):
        rows = (line.split() for line in _text(folder / "properties").splitlines())
        values = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
        if not folder.name.isdigit() or not values.get("simd_count"):
            continue  # a CPU, or a node that the container may not read
        minor = values.get("drm_render_minor", 0)
        yield Gpu(
            pci=_bus_address(values),
            gfx=gfx_name(values.get("gfx_target_version", 0)),
            device_id=values.get("device_id"),
            node=int(folder.name),
            render=f"renderD{minor}" if minor else "",
        )


def gfx_name(version: int) -> str:
    """The target of a ``gfx_target_version``: major·10000 + minor·100 + stepping; "" for 0.

    Calculated, so that a card newer than every table has its name all the same.
    """
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def _bus_address(values: Mapping[str, int]) -> str:
    location = values.get("location_id")
    if location is None:
        return ""
    return f"{values.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _rocminfo(program: Path) -> dict[int, Gpu]:
    """What rocminfo says of each GPU agent, by KFD node; nothing when it fails or hangs."""
    try:
        text = subprocess.run([program], capture_output=True, text=True, timeout=_ROCMINFO_SECONDS, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = {}
    for agent in re.split(r"^Agent \d+", text, flags=re.MULTILINE)[1:]:
        node = re.search(r"^\s*Node:\s*(\d+)", agent, re.MULTILINE)
        target = re.search(r"^\s*Name:\s*amdgcn-amd-amdhsa--(gfx[0-9a-f]+(?::\w+[+-])*)\s*$", agent, re.MULTILINE)
        product = re.search(r"^\s*Marketing Name:\s*(\S.*?)\s*$", agent, re.MULTILINE)
        if node and target:
            found[int(node[1])] = Gpu(gfx=target[1], product=product[1] if product else "")
    return found
