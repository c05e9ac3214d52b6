"""The canary: the smallest HIP library of the tree goes through repair and verify before the long compile.

It uses the very tools of the run (the image's patchelf, auditwheel and interpreter), so what would have failed after
hours fails in minutes (pypa/auditwheel#722, LMCache#4694: repair refused its patchelf after the compile).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from rocm_wheels.build import commands
from rocm_wheels.build.plan import BuildPlan
from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import CanaryRejected, StageFailed
from rocm_wheels.wheel import WheelWriter

_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: canary of a build, never published\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: rocm-wheels\nRoot-Is-Purelib: false\nTag: {tag}\n"
_TAG = "py3-none-linux_x86_64"


def run_canary(plan: BuildPlan, run: Callable[[Sequence[str]], None]) -> None:
    """Pack the built canary library, then repair and verify it by ``run`` (a command in the container).

    Raises :class:`CanaryRejected` when a tool of the chain refuses it.
    """
    folder = plan.tree / "canary"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wheel = pack(plan, folder)
    inside = f"{commands.TREE}/canary"
    chain = (
        ["repair", f"{inside}/{wheel.name}", "--mode", "thin", "--dest", f"{inside}/repaired"],
        ["verify", f"{inside}/repaired", "--profile", "any", "--arch", ";".join(plan.archs)],
    )
    for task in chain:
        try:
            run(commands.project_task(*task))
        except StageFailed as error:
            raise CanaryRejected(
                f"the canary library {plan.release.recipe.canary_target} did not pass {task[0]}: {error.message}",
                remedy=error.remedy,
            ) from error


def pack(plan: BuildPlan, folder: Path) -> Path:
    """A wheel in ``folder`` holding the canary library and the libraries of the tree that it needs."""
    package = f"{plan.release.package}_canary"
    name = f"{package}-{plan.version}"
    path = folder / f"{name}-{_TAG}.whl"
    library = plan.source / "build" / plan.release.recipe.canary_library
    with WheelWriter(path) as writer:
        for file in _closure(library):
            writer.add(f"{package}/lib/{file.name}", file.read_bytes(), mode=0o755)
        writer.add(f"{name}.dist-info/METADATA", _METADATA.format(name=package, version=plan.version).encode())
        writer.add(f"{name}.dist-info/WHEEL", _WHEEL.format(tag=_TAG).encode())
    return path


def _closure(library: Path) -> list[Path]:
    """``library`` and those beside it that it needs, directly or not, by name."""
    found: dict[str, Path] = {}
    queue = [library]
    while queue:
        file = queue.pop()
        found[file.name] = file
        needed = ElfFile.parse(file.read_bytes(), file.name).needed
        queue += [file.with_name(n) for n in needed if n not in found and file.with_name(n).is_file()]
    return [found[name] for name in sorted(found)]
