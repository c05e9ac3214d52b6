"""Machines with GPUs: trees of sysfs and device nodes as the kernel lays them, made below a directory of the test."""

from __future__ import annotations

from pathlib import Path

VANGOGH, NAVI21, NAVI23, MI210, NEWER = 0x163F, 0x73BF, 0x73FF, 0x740F, 0x7FFF


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def add_pci(
    root: Path,
    address: str,
    device: int,
    *,
    revision: int = 0xC7,
    kind: str = "0x030000",
    vendor: str = "0x1002",
    driver: str = "amdgpu",
    block: tuple[int, int, int] | None = None,
    render: int | None = None,
) -> None:
    """A PCI device below /sys/bus/pci/devices, bound to ``driver`` ("" for none)."""
    folder = root / "sys/bus/pci/devices" / address
    for name, value in (("vendor", vendor), ("device", hex(device)), ("revision", hex(revision)), ("class", kind)):
        write(folder / name, f"{value}\n")
    if driver:
        target = root / "sys/bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(target)
    for name, number in zip(("major", "minor", "revision"), block or (), strict=False):
        write(folder / "ip_discovery/die/0/GC/0" / name, f"{number}\n")
    if render:
        (folder / f"drm/renderD{render}").mkdir(parents=True)
        (folder / "drm/card0").mkdir()


def add_node(root: Path, number: int, version: int, *, bus: int = 3, render: int = 128, device: int = NAVI23) -> Path:
    """A node of the KFD topology; version 0 is a CPU. Returns its properties file."""
    rows = {"cpu_cores_count": 0 if version else 16, "simd_count": 64 if version else 0, "gfx_target_version": version}
    if version:
        rows |= {
            "vendor_id": 4098,
            "device_id": device,
            "location_id": bus << 8,
            "domain": 0,
            "drm_render_minor": render,
        }
    path = root / f"sys/class/kfd/kfd/topology/nodes/{number}/properties"
    write(path, "".join(f"{key} {value}\n" for key, value in rows.items()))
    return path


def add_devices(root: Path, *renders: int) -> None:
    """/dev/kfd and render nodes; plain files, which open like the real ones."""
    write(root / "dev/kfd", "")
    for render in renders:
        write(root / f"dev/dri/renderD{render}", "")


def make_machine(root: Path) -> Path:
    """A CPU and one RX 6600 that this user can compute on."""
    add_pci(root, "0000:03:00.0", NAVI23, block=(10, 3, 4), render=128)
    add_node(root, 0, 0)
    add_node(root, 1, 100302)
    add_devices(root, 128)
    write(root / "usr/share/libdrm/amdgpu.ids", "# comment\n1.0.0\n73FF,\tC7,\tAMD Radeon RX 6600\n")
    write(root / "proc/sys/kernel/osrelease", "6.12.0\n")
    (root / "sys/module/amdgpu").mkdir(parents=True)
    return root
