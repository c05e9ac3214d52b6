"""The repair chain on a wheel of some kilobytes: patchelf, auditwheel's policies, archive and checks, as they are here.

What would refuse the finished wheel after hours of compiling refuses this one now (pypa/auditwheel#722,
LMCache/LMCache#4694).
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.doctor.model import Result, State
from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.edit import Edit, find_patchelf, run_patchelf
from rocm_wheels.repair import RepairOptions, apply_plan, plan_repair
from rocm_wheels.verify import VerifyOptions, verify
from rocm_wheels.wheel import WheelArchive, WheelWriter

_NAME = "doctor_canary-1"
_TAG = "py3-none-linux_x86_64"
_METADATA = "Metadata-Version: 2.1\nName: doctor-canary\nVersion: 1\n"
_WHEEL = f"Wheel-Version: 1.0\nGenerator: rocm-wheels\nRoot-Is-Purelib: false\nTag: {_TAG}\n"
_RPATH = "/opt/rocm/lib:$ORIGIN"


def check_chain(settings: Settings) -> Iterator[Result]:
    """Repair and verify the canary with the tools of this environment."""
    patchelf = find_patchelf()
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-doctor-") as folder:
        wheel = _canary(Path(folder))
        plan = plan_repair(wheel, RepairOptions(mode="thin"))
        repaired = apply_plan(plan, Path(folder) / "out", Console(quiet=True))
        report = verify([repaired], VerifyOptions(profile="any"), Console(quiet=True))
        wrong = [f"{f.check.id}: {f.evidence}" for w in report.wheels for f in w.findings] if not report.ok else []
        rpath = _search_path(repaired)
    if rpath != "$ORIGIN":
        wrong.append(f"its RUNPATH is {rpath!r} after repair, not '$ORIGIN'")
    if wrong:
        remedy = "install this project's dependencies as pyproject.toml pins them"
        yield Result("repair-chain", State.FAILED, "; ".join(wrong), remedy)
    else:
        found = f"a canary wheel was repaired and verified (patchelf {patchelf.version}, {plan.measured.policy.tag})"
        yield Result("repair-chain", State.OK, found)


def _canary(folder: Path) -> Path:
    """A wheel with one real library, taken from a dependency of this project, that has a RUNPATH to be mended."""
    library = folder / "canary.so"
    spec = importlib.util.find_spec("isal.isal_zlib")
    assert spec and spec.origin  # a dependency that this process has imported already
    library.write_bytes(Path(spec.origin).read_bytes())
    run_patchelf(library, Edit(rpath=_RPATH), find_patchelf())
    path = folder / f"{_NAME}-{_TAG}.whl"
    with WheelWriter(path) as writer:
        writer.add("doctor_canary/canary.so", library.read_bytes(), mode=0o755)
        writer.add(f"{_NAME}.dist-info/METADATA", _METADATA.encode())
        writer.add(f"{_NAME}.dist-info/WHEEL", _WHEEL.encode())
    return path


def _search_path(wheel: Path) -> str:
    with WheelArchive.open(wheel) as archive:
        content = archive.read("doctor_canary/canary.so")
    elf = ElfFile.parse(content, "canary.so")
    return elf.runpath or elf.rpath or ""
