"""Sizes at which an index or an upload would hurt if it were done naively."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_wheels.console import Console
from rocm_wheels.publish import update_index
from tests.publish_servers import pypiserver
from tests.publish_wheels import make_wheel

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)


def test_one_new_file_among_ten_thousand_rewrites_its_project_only(tmp_path: Path) -> None:
    model = make_wheel(tmp_path / "model", name="p", version="1")
    out = tmp_path / "out"
    out.mkdir()
    for project in range(100):
        for version in range(100):
            shutil.copyfile(model, out / f"p{project}-{version}-py3-none-any.whl")
    assert update_index(out, console=CONSOLE).total == 10_000
    shutil.copyfile(model, out / "p7-100-py3-none-any.whl")
    report = update_index(out, console=CONSOLE)
    assert report.projects == ("p7",) and report.total == 10_001


def test_a_big_wheel_is_uploaded_in_little_memory(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={f"minitorch/{n}": bytes(64 << 20) for n in range(4)})
    code = (
        "import sys; from pathlib import Path; from rocm_wheels.publish import publish; "
        "from rocm_wheels.config import Settings; from rocm_wheels.console import Console; "
        "r = publish([Path(sys.argv[1])], sys.argv[2], settings=Settings(cache_dir=sys.argv[3]), console=Console()); "
        "status = open('/proc/self/status').read(); print(status.split('VmHWM:')[1].split()[0])"
    )
    with pypiserver(tmp_path / "server") as server:
        command = [sys.executable, "-c", code, str(wheel), server.url, str(tmp_path / "cache")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert (server.files / wheel.name).stat().st_size == wheel.stat().st_size
    used = int(done.stdout.split()[-1]) * 1024  # getrusage would count what the parent had before it forked
    assert wheel.stat().st_size > 256 << 20
    assert used < 200 << 20, f"{used >> 20} MiB"
