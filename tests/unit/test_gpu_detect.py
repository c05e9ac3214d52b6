from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocm_wheels.gpu.access import driver_version, notes, obstacles
from rocm_wheels.gpu.cards import all_cards
from rocm_wheels.gpu.detect import _BLOCKS, detect, gfx_name
from tests.gpu_fixtures import MI210, NAVI21, NAVI23, NEWER, add_devices, add_node, add_pci, make_machine, write


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    return make_machine(tmp_path / "root")


def unprivileged(call: Callable[[], str]) -> str:
    """The result of ``call`` in a process that is not root's, so that permissions count."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writer, call().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


def open_up(root: Path) -> None:
    """Let another user reach ``root``, whatever the modes of pytest's directories above it."""
    for folder in (root, *root.parents[:4]):
        folder.chmod(folder.stat().st_mode | 0o755)


def test_a_card_has_target_product_driver_and_nodes(machine: Path) -> None:
    (gpu,) = detect(machine)
    assert (gpu.pci, gpu.gfx, gpu.product) == ("0000:03:00.0", "gfx1032", "AMD Radeon RX 6600")
    assert (gpu.driver, gpu.node, gpu.render, gpu.device_id) == ("amdgpu", 1, "renderD128", NAVI23)
    assert "Radeon RX 6600" in gpu.card.names
    assert obstacles(gpu, machine) == ()
    assert driver_version(machine) == "amdgpu of Linux 6.12.0"


def test_the_target_comes_from_the_graphics_block_where_there_is_no_compute_driver(machine: Path) -> None:
    add_pci(machine, "0000:0a:00.0", NAVI21, block=(10, 3, 2), render=129)
    by_bus = {gpu.pci: gpu for gpu in detect(machine)}
    assert by_bus["0000:0a:00.0"].gfx == "gfx1031"  # the block is 10.3.2, the target is not gfx1032


def test_every_block_is_of_a_target_that_the_table_has() -> None:
    assert set(_BLOCKS.values()) <= {c.gfx for c in all_cards()}


@pytest.mark.parametrize(
    ("version", "gfx"), [(90010, "gfx90a"), (90012, "gfx90c"), (100302, "gfx1032"), (110501, "gfx1151"), (0, "")]
)
def test_target_versions_of_sysfs_are_names(version: int, gfx: str) -> None:
    assert gfx_name(version) == gfx


def test_an_unknown_card_hides_none_and_is_named(machine: Path) -> None:
    add_pci(machine, "0000:01:00.0", NEWER, render=130)
    add_node(machine, 2, 130000, bus=1, render=130, device=NEWER)
    add_devices(machine, 130)
    unknown, known = detect(machine)
    assert (unknown.gfx, known.gfx) == ("gfx1300", "gfx1032")
    assert unknown.card.names == ()
    assert "gfx1300 is not known" in obstacles(unknown, machine)[0].what
    assert obstacles(known, machine) == ()


def test_a_node_that_cannot_be_read_hides_none(machine: Path) -> None:
    path = add_node(machine, 2, 90010, bus=9)
    path.unlink()
    path.mkdir()  # reading it fails for root as well
    add_node(machine, 3, 100300, bus=8, render=131, device=NAVI21).write_bytes(b"\xff\xfe broken\nsimd_count x\n")
    assert [gpu.gfx for gpu in detect(machine)] == ["gfx1032"]


def test_two_nodes_of_a_partitioned_accelerator_are_two_gpus(tmp_path: Path) -> None:
    add_pci(tmp_path, "0000:05:00.0", MI210, kind="0x120000")
    add_node(tmp_path, 1, 90010, bus=5, render=128)
    add_node(tmp_path, 2, 90010, bus=5, render=129)
    assert [(g.pci, g.node, g.render) for g in detect(tmp_path)] == [
        ("0000:05:00.0", 1, "renderD128"),
        ("0000:05:00.0", 2, "renderD129"),
    ]


def test_cards_of_others_audio_and_bridges_are_no_gpus(machine: Path) -> None:
    add_pci(machine, "0000:03:00.1", 0xAB28, kind="0x040300", driver="snd_hda_intel")
    add_pci(machine, "0000:00:01.0", 0x1478, kind="0x060400", driver="pcieport")
    add_pci(machine, "0000:07:00.0", 0x2684, vendor="0x10de", driver="nvidia")
    assert len(detect(machine)) == 1


def test_a_machine_without_gpus_has_none(tmp_path: Path) -> None:
    assert detect(tmp_path) == ()
    assert driver_version(tmp_path) == ""


def test_rocminfo_adds_features_and_names_and_its_failure_costs_nothing(machine: Path, tmp_path: Path) -> None:
    program = tmp_path / "rocminfo"
    write(
        program,
        "#!/bin/sh\ncat <<'END'\nHSA Agents\n*******\nAgent 1\n*******\n  Name:  AMD EPYC\n  Marketing Name: AMD EPYC\n"
        "  Node:                    0\n*******\nAgent 2\n*******\n  Name:                    gfx90a\n"
        "  Marketing Name:          AMD Instinct MI210\n  Node:                    1\n"
        "  ISA 1\n    Name:                    amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-\nEND\n",
    )
    program.chmod(0o755)
    (gpu,) = detect(machine, rocminfo=program)
    assert (gpu.gfx, gpu.product) == ("gfx90a:sramecc+:xnack-", "AMD Instinct MI210")
    for broken in ("#!/bin/sh\necho Agent 1; echo ' Node: x'; exit 1\n", "no program"):
        write(program, broken)
        assert detect(machine, rocminfo=program) == detect(machine)


@pytest.mark.parametrize(
    ("driver", "text"), [("", "no driver"), ("vfio-pci", "virtual machines"), ("radeon", "radeon")]
)
def test_a_card_without_its_driver_is_said_to_be(tmp_path: Path, driver: str, text: str) -> None:
    add_pci(tmp_path, "0000:03:00.0", NAVI23, driver=driver)
    (gpu,) = detect(tmp_path)
    (found,) = obstacles(gpu, tmp_path)
    assert text in found.what + found.remedy


def test_a_missing_node_is_told_apart_on_a_host_and_in_a_container(machine: Path) -> None:
    (machine / "dev/kfd").unlink()
    (gpu,) = detect(machine)
    (found,) = obstacles(gpu, machine)
    assert found.what == "/dev/kfd does not exist"
    assert "modprobe" in found.remedy
    write(machine / "run/.containerenv", "")
    (found,) = obstacles(gpu, machine)
    assert found.what == "/dev/kfd is not in this container"
    assert "--device /dev/kfd" in found.remedy
    (machine / "dev/dri/renderD128").unlink()
    assert "--device /dev/dri" in obstacles(gpu, machine)[1].remedy


def test_a_forbidden_node_names_owner_mode_and_the_group_to_join(machine: Path) -> None:
    open_up(machine)
    (machine / "dev/kfd").chmod(0o000)
    (gpu,) = detect(machine)
    text = unprivileged(lambda: "\n".join(f"{o.what} {o.remedy}" for o in obstacles(gpu, machine)))
    owner = (machine / "dev/kfd").owner()
    group = (machine / "dev/kfd").group()
    assert f"/dev/kfd belongs to {owner}:{group} with mode 0000; you are in " in text
    assert f"usermod -aG {group} " in text
    write(machine / ".dockerenv", "")
    text = unprivileged(lambda: obstacles(gpu, machine)[0].remedy)
    assert text == f"start the container with --group-add {(machine / 'dev/kfd').stat().st_gid}"


def test_a_card_that_the_compute_driver_leaves_out_is_unsupported(machine: Path) -> None:
    add_pci(machine, "0000:0b:00.0", 0x6819, block=None, render=132)
    add_devices(machine, 132)
    gpu = next(g for g in detect(machine) if g.pci == "0000:0b:00.0")
    text = " ".join(o.what for o in obstacles(gpu, machine))
    assert "does not list it" in text
    assert "target cannot be read" in text


def test_variables_that_hide_cards_are_told() -> None:
    assert notes({"ROCR_VISIBLE_DEVICES": "1", "HOME": "/root"}) == ("ROCR_VISIBLE_DEVICES=1 is set",)


def test_a_driver_beside_the_kernel_tells_its_own_version(machine: Path) -> None:
    write(machine / "sys/module/amdgpu/version", "6.14.14\n")
    assert driver_version(machine) == "amdgpu 6.14.14"
