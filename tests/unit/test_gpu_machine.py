from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import requests

from rocm_wheels.cli import gpu as task
from rocm_wheels.console import Console
from rocm_wheels.errors import UsageError
from rocm_wheels.inspect import inspect_wheel
from rocm_wheels.inspect.machine import CARDS, card_rows, look
from rocm_wheels.publish.serve import make_server
from rocm_wheels.publish.served import archs_on_index
from tests.gpu_fixtures import NEWER, add_devices, add_node, add_pci, make_machine
from tests.inspect_wheels import demo_wheel, device_library


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An RX 6600, a 780M that the compute driver leaves out, and a card newer than every table."""
    root = make_machine(tmp_path / "root")
    add_pci(root, "0000:0a:00.0", 0x15BF, block=(11, 0, 1), render=129)
    add_pci(root, "0000:0b:00.0", NEWER, render=130)
    add_node(root, 2, 130000, bus=0x0B, render=130, device=NEWER)
    add_devices(root, 129, 130)
    return root


def test_each_card_has_its_state_override_and_wheels(root: Path, tmp_path: Path) -> None:
    library = device_library(tmp_path, "libk.so", ["gfx1030", "gfx1100"])
    wheel = inspect_wheel(demo_wheel(tmp_path, {"libk.so": library}))
    report = json.loads(json.dumps(look(root, {}, wheels=[wheel]).as_dict()))
    first, second, third = report["gpus"]
    assert (first["gfx"], first["usable"]) == ("gfx1032", True)
    assert first["override"]["value"] == "10.3.0"
    assert first["wheels"][wheel.wheel.name]["verdict"] == "override"
    assert (second["gfx"], second["usable"], second["override"]) == ("gfx1103", False, None)
    assert "page faults" in second["refused_override"]["why"]
    assert second["wheels"][wheel.wheel.name]["verdict"] == "none"
    assert (third["gfx"], third["names"], third["usable"]) == ("gfx1300", [], False)


def test_the_table_says_why_and_what_to_try(root: Path) -> None:
    rows = list(card_rows(look(root, {"HIP_VISIBLE_DEVICES": "0"})))
    assert {len(row) for row in rows} == {len(CARDS)}
    assert rows[0][1:5] == ("AMD Radeon RX 6600", "gfx1032", "amdgpu", "yes")
    assert rows[0][5].startswith("HSA_OVERRIDE_GFX_VERSION_1=10.3.0 where")  # it is not alone
    assert "one of Radeon 780M" in rows[1][1]
    assert [row[4] for row in rows[1:4]] == ["no", "because", "try"]


def test_the_task_prints_the_machine_of_this_test(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = look(root, {"HIP_VISIBLE_DEVICES": "0"})
    task._print(machine)
    shown = capsys.readouterr().out
    assert "driver: amdgpu of Linux 6.12.0" in shown
    assert "HIP_VISIBLE_DEVICES=0 is set" in shown
    assert "gfx1300" in shown


def test_the_releases_of_the_matrix_are_asked_per_known_target(root: Path) -> None:
    served = task._releases(look(root, {}))
    assert list(served) == ["gfx1032", "gfx1103"]
    assert {row["answer"] for row in served["gfx1032"]} >= {"override"}


def test_a_card_alone_takes_the_plain_override(tmp_path: Path) -> None:
    (row,) = card_rows(look(make_machine(tmp_path / "root"), {}))
    assert row[5].startswith("HSA_OVERRIDE_GFX_VERSION=10.3.0 where")


def test_wheels_of_an_index_answer_by_their_manifests(root: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "index"
    for version, archs in (("1.0", ["gfx1030"]), ("2.0", None)):
        path = demo_wheel(tmp_path / version, {}, version=version)
        wheels.mkdir(exist_ok=True)
        path.rename(wheels / path.name)
        if archs:
            (wheels / path.name).with_suffix(".manifest.json").write_text(json.dumps({"archs": archs}))
    with make_server(wheels, console=Console(quiet=True), port=0) as server, requests.Session() as session:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/simple"
        try:
            indexed = archs_on_index(f"{address}/demo/", session)
            with pytest.raises(UsageError, match="lists no wheel"):
                archs_on_index(f"{address}/nothing", session)
        finally:
            server.shutdown()
    assert list(indexed.values()) == [("gfx1030",), ()]
    seen = look(root, {}, indexed=indexed).gpus[0]
    assert [said.kind for _, said in seen.indexed] == ["override", "none"]
    assert "no manifest" in seen.indexed[1][1].why
