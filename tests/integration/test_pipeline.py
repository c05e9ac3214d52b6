"""The main job for real: image, builds in the container, repair, verify, publish, install, and what kills it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels.build.commands import PROJECT, task_environment
from rocm_wheels.build.engine import Mount, find_engine
from rocm_wheels.build.image import ensure_image
from rocm_wheels.build.setup import ensure_packages
from rocm_wheels.config import PROJECT_ROOT, load
from rocm_wheels.console import Console
from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import PackagesMissing
from rocm_wheels.release import load_matrix
from rocm_wheels.wheel import WheelArchive

pytestmark = pytest.mark.integration

PYTHONS = ("3.11", "3.13", "3.14")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    try:
        ensure_packages("engine", Console())
    except PackagesMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("dist")
    yield folder
    shutil.rmtree(folder)  # fat wheels are large, and pytest would keep three runs of them


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "nox", *words]


def environment(dist: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "ROCM_WHEELS_DIST_DIR": str(dist), **more}


def nox(dist: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        cwd=PROJECT_ROOT,
        env=environment(dist, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def main_job(dist: Path) -> str:
    done = nox(dist, "-s", "quickstart")
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_main_job_installs_every_wheel_back_by_pip_and_uv(main_job: str) -> None:
    rows = [line.split() for line in main_job.splitlines() if line.startswith(("thin ", "fat "))]
    assert {(r[0], r[1], r[2]) for r in rows} == {
        (mode, python, tool) for mode in ("thin", "fat") for python in PYTHONS for tool in ("pip", "uv")
    }


def test_second_main_job_repeats_nothing_that_is_finished(main_job: str, dist: Path) -> None:
    before = {path: sha256(path) for path in dist.rglob("*.whl")}
    again = nox(dist, "-s", "quickstart")
    assert again.returncode == 0, again.stdout[-4000:]
    assert again.stdout.count("done before") == 6 * len(PYTHONS) + 2 * len(PYTHONS)
    assert {path: sha256(path) for path in dist.rglob("*.whl")} == before


def member(path: Path, name: str) -> ElfFile:
    with WheelArchive.open(path) as archive:
        return ElfFile.parse(archive.read(name), name)


def test_thin_wheel_leaves_rocm_outside_and_says_so(main_job: str, dist: Path) -> None:
    (wheel,) = (dist / "thin").glob("*cp313*.whl")
    with WheelArchive.open(wheel) as archive:
        names = [m.name for m in archive.members]
        assert "Requires-External: libamdhip64.so.5" in archive.metadata
    assert not [n for n in names if "amdhip64" in n]
    assert wheel.stat().st_size < 1_000_000
    runpath = member(wheel, "minitorch/lib/libmini_hip.so").runpath or ""
    assert runpath.startswith("$ORIGIN:")
    assert all(entry.startswith("$ORIGIN") for entry in runpath.split(":"))


def test_fat_wheel_brings_rocm_under_its_own_names_with_data_and_licences(main_job: str, dist: Path) -> None:
    (wheel,) = (dist / "fat").glob("*cp313*.whl")
    with WheelArchive.open(wheel) as archive:
        names = {m.name for m in archive.members}
        info = archive.dist_info
        sbom = json.loads(archive.read(f"{info}/sboms/rocm-wheels.cdx.json"))
    for library in ("libamdhip64.so.5", "librocblas.so.0", "libamd_comgr.so.2", "libhsa-runtime64.so.1"):
        assert f"minitorch/lib/{library}" in names
    data = [n for n in names if "/rocblas/" in n]
    assert any("gfx1030" in n for n in data)
    assert not any("gfx90a" in n for n in data)
    assert {c["name"] for c in sbom["components"]} >= {"librocblas0", "libamdhip64-5"}
    assert any(n.startswith(f"{info}/licenses/rocm/librocblas0") for n in names)
    elf = member(wheel, "minitorch/lib/librocblas.so.0")
    assert (elf.rpath, elf.runpath) == ("$ORIGIN", None)


# Stage and how many seconds into it the build is killed.
KILLS = [
    ("fetch", 0.0),
    ("hipify", 0.0),
    ("hipify", 0.6),
    ("configure", 0.5),
    ("configure", 2.0),
    ("canary", 1.0),
    ("canary", 4.0),
    ("compile", 0.7),
    ("wheel", 0.3),
    ("wheel", 1.5),
]


def test_a_repair_by_hand_grafts_what_the_image_has(main_job: str, dist: Path, tmp_path: Path) -> None:
    (built,), (fat,) = (list((dist / folder).glob("*cp313*.whl")) for folder in ("built", "fat"))
    words = ["repair", str(built), "--mode", "fat", "--arch", "gfx1030;gfx1100", "--image", "debian-trixie"]
    command = [sys.executable, "-m", "invoke", *words, "--dest", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sha256(tmp_path / fat.name) == sha256(fat)
    (tmp_path / fat.name).unlink()


@pytest.mark.parametrize("mode", ["thin", "fat"])
def test_every_library_is_mapped_from_where_the_plan_has_it(main_job: str, dist: Path, mode: str) -> None:
    (built,), (repaired,) = (list((dist / folder).glob("*cp313*.whl")) for folder in ("built", mode))
    row = load_matrix().images["debian-trixie"]
    words = ["tests.loaded_as_planned", mode, "gfx1030;gfx1100", f"/dist/built/{built.name}"]
    words += [f"/dist/{mode}/{repaired.name}", "/opt/python/3.13/bin/python"]
    lines: list[str] = []
    with find_engine(console=Console(quiet=True), settings=load()) as engine:
        code = engine.run(
            ensure_image(row, engine=engine, settings=load(), console=Console()).tag,
            ["/opt/tools/bin/python", "-m", *words],
            mounts=(Mount(dist, "/dist"), Mount(PROJECT_ROOT, PROJECT, read_only=True)),
            env={**task_environment(), "PYTHONPATH": PROJECT},
            workdir="/dist",
            on_line=lines.append,
        )
    assert code == 0, "\n".join(lines)
    found = json.loads(lines[-1])
    assert found["wrong"] == []
    assert found["compared"] > (30 if mode == "fat" else 10)


def kill_at(dist: Path, stage: str, seconds: float, *words: str) -> None:
    """Start a build and SIGKILL it ``seconds`` into ``stage``; the process only, as the kernel's OOM killer would."""
    with subprocess.Popen(
        command(*words), cwd=PROJECT_ROOT, env=environment(dist), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if line.decode().startswith(f"• {stage} minitorch"):
                time.sleep(seconds)
                break
        process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(("stage", "seconds"), KILLS, ids=[f"{s}+{t}" for s, t in KILLS])
def test_killed_build_ends_in_the_same_bytes(main_job: str, dist: Path, stage: str, seconds: float) -> None:
    (wheel,) = (dist / "built").glob("*cp313*.whl")
    undisturbed = sha256(wheel)
    kill_at(dist, stage, seconds, "-s", "build-3.13", "--", "--fresh")
    wheel.unlink(missing_ok=True)
    done = nox(dist, "-s", "build-3.13")
    assert done.returncode == 0, done.stdout[-4000:]
    assert sha256(wheel) == undisturbed


def test_two_builds_on_one_tree_wait_for_each_other(main_job: str, dist: Path) -> None:
    (wheel,) = (dist / "built").glob("*cp311*.whl")
    undisturbed = sha256(wheel)
    runs = [
        subprocess.Popen(
            command("-s", "build-3.11", "--", "--fresh"),
            cwd=PROJECT_ROOT,
            env=environment(dist),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sum("waiting for another run" in text for text in outputs) == 1
    assert sha256(wheel) == undisturbed


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--release", "2.6"), 21, "did you mean"),
        (("--release", "2.6.0", "--image", "debian-trixi"), 24, "debian-trixie"),
        (("--arch", ";"), 23, "empty"),
        (("--arch", "gfx1037"), 23, "did you mean"),
        (("--until", "compil"), 11, "did you mean compile"),
        (("--engine", "dockerr"), 12, "docker"),
    ],
)
def test_bad_input_has_its_own_exit_code_and_names_the_nearest(
    dist: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = nox(dist, "-s", "build-3.13", "--", *words)
    assert done.returncode == code
    assert message in done.stdout
    assert "Traceback" not in done.stdout


def test_python_outside_the_matrix_is_refused(dist: Path) -> None:
    done = nox(dist, "-s", "build-3.10")
    assert done.returncode == 22
    assert "3.11, 3.13, 3.14" in done.stdout


def test_real_pytorch_reaches_its_canary(dist: Path) -> None:
    done = nox(dist, "-s", "build-3.13", "--", "--release", "2.6.0", "--arch", "gfx1030", "--until", "canary")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "canary passed" in done.stdout
