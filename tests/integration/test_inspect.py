"""Inspect as it is called, on a wheel whose library is larger than what it may hold."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.elf_fixtures import MAGIC, make_library
from tests.inspect_wheels import BLAS_DATA, demo_wheel, device_library

pytestmark = pytest.mark.integration

_MEASURE = r"""
import re, sys
from pathlib import Path
from rocm_wheels.inspect import answer, inspect_wheel
found = inspect_wheel(Path(sys.argv[1]), memory_mib=int(sys.argv[2]))
assert answer(found, "gfx1030").verdict == "native"
# Not ru_maxrss: a child starts with that of its parent.
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with a library of 300 MiB: constants and device code, each larger than the bound of the test."""
    folder = tmp_path_factory.mktemp("huge")
    noise = random.Random(2).randbytes(24 << 10)
    with (folder / "constants").open("wb") as file:
        for _ in range(100):  # deflates 60:1; more would be taken for a bomb
            file.write(noise + bytes((1536 << 10) - len(noise)))
    size = 150 << 20
    target = b"hipv4-amdgcn-amd-amdhsa--gfx1030"
    with (folder / "device").open("wb") as file:
        file.write(MAGIC + (1).to_bytes(8, "little"))
        file.write(b"".join(n.to_bytes(8, "little") for n in (4096, size - 4096, len(target))) + target)
        for block in range(1, 100):
            file.seek(block * (1536 << 10))
            file.write(noise)
        file.truncate(size)
    sections = (
        f'.section .rodata\\n.incbin \\"{folder}/constants\\"\\n.previous',
        f'.section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\n.incbin \\"{folder}/device\\"\\n.previous',
    )
    code = "".join(f'__asm__("{text}");' for text in sections) + "int f(void) { return 1; }"
    library = make_library(folder, "libhuge.so", code=code)
    assert library.stat().st_size > 300 << 20
    return demo_wheel(folder, {"libhuge.so": library.read_bytes()})


def test_memory_stays_bounded_for_a_library_larger_than_the_bound(huge: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(huge), "64"], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) <= 128


def invoke(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    command = [sys.executable, "-m", "invoke", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    library = device_library(tmp_path, "libk.so", ["gfx1030", "gfx1100"])
    return demo_wheel(tmp_path, {"libk.so": library}, data={BLAS_DATA.format("gfx1030"): b"data"})


def test_the_task_answers_for_people_and_for_machines(wheel: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    shown = invoke("inspect", str(wheel), "--gpu", "RX 6600", "--html", str(page))
    assert shown.returncode == 0, shown.stderr
    assert "HSA_OVERRIDE_GFX_VERSION=10.3.0" in shown.stdout
    assert "libk.so" in page.read_text("utf-8")
    said = invoke("inspect", str(wheel.parent), "--gpu", "gfx1100", "--json")
    ((answer,),) = [found["answers"] for found in json.loads(said.stdout)]
    assert (answer["verdict"], answer["lacking"][0]["file"]) == ("none", "rocBLAS")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--gpu", "RX 6601"), 23, "RX 6600"),
        (("--gpu", "auto"), 11, "no AMD GPU"),
        (("--html", "x.html"), 11, "one wheel"),
    ],
)
def test_a_wrong_wish_is_an_error_with_a_remedy(wheel: Path, words: tuple[str, ...], code: int, text: str) -> None:
    if "auto" in words and Path("/sys/class/kfd").exists():
        pytest.skip("this machine may have a GPU")
    demo_wheel(wheel.parent.parent, {}, name="other")
    done = invoke("inspect", str(wheel.parent), *words)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr


def test_gpu_reports_this_machine(wheel: Path) -> None:
    report = json.loads(invoke("gpu", "--wheels", str(wheel), "--json").stdout)
    assert {"driver", "container", "notes", "gpus"} <= set(report)
