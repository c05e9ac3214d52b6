"""Build wheels: image once, then one tree per Python, each under its own lock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from rocm_wheels.build import commands
from rocm_wheels.build.engine import find_engine
from rocm_wheels.build.image import ensure_image
from rocm_wheels.build.plan import STAGES, BuildPlan
from rocm_wheels.build.stages import Builder, built_wheel, write_atomically
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import TreeLocked


@dataclass(frozen=True)
class Built:
    """What one plan gave: ``wheel`` is in ``dist_dir``, or None when the run stopped before the wheel stage."""

    plan: BuildPlan
    wheel: Path | None


def build(plans: Sequence[BuildPlan], *, settings: Settings, console: Console, fresh: bool = False) -> list[Built]:
    """Carry out ``plans`` one after another; ``fresh`` throws their trees away first.

    A tree that is finished is not built again. Raises the error of the first stage that fails; running again
    resumes there.
    """
    with find_engine(settings.engine, console=console, settings=settings) as engine:
        for image in {plan.image.name: plan.image for plan in plans}.values():
            ensure_image(image, engine=engine, settings=settings, console=console)
        results = []
        for plan in plans:
            with tree_lock(plan.tree, settings, console):
                if fresh:
                    shutil.rmtree(plan.tree, ignore_errors=True)
                Builder(plan=plan, engine=engine, settings=settings, console=console).run()
                results.append(Built(plan, _deliver(plan, settings)))
    return results


@contextmanager
def tree_lock(tree: Path, settings: Settings, console: Console) -> Iterator[None]:
    """Hold ``tree`` alone. The kernel drops the lock with its process, so a killed run blocks nobody.

    Raises :class:`TreeLocked` after ``lock_timeout`` seconds.
    """
    tree.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{tree}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        console.line(f"waiting for another run on {tree.name}")
        try:
            lock.acquire(timeout=settings.lock_timeout or -1)
        except Timeout:
            raise TreeLocked(
                f"another run holds {tree} since {settings.lock_timeout} s",
                remedy="wait for it, or raise lock_timeout",
            ) from None
    try:
        yield
    finally:
        lock.release()


def _deliver(plan: BuildPlan, settings: Settings) -> Path | None:
    """Copy the built wheel and its manifest to ``dist_dir``."""
    if plan.until != STAGES[-1]:
        return None
    wheel = built_wheel(plan)
    dist = Path(settings.dist_dir).resolve() / "built"
    dist.mkdir(parents=True, exist_ok=True)
    target = dist / wheel.name
    beside = target.with_name(f".{target.name}.part")
    shutil.copyfile(wheel, beside)
    beside.replace(target)
    write_atomically(target.with_suffix(".manifest.json"), json.dumps(manifest(plan), indent=2, sort_keys=True) + "\n")
    return target


def manifest(plan: BuildPlan) -> dict[str, object]:
    """What the wheel was made from and with: the plan, the source's identity and patches, compilers, cost per stage."""
    stamps = [json.loads((plan.tree / "stamps" / f"{stage}.json").read_text("utf-8")) for stage in plan.stages]
    toolchain = (plan.tree / commands.TOOLCHAIN).read_text("utf-8").splitlines()
    state = plan.source / ".rocm-wheels" / "source.json"
    return {
        **plan.as_dict(),
        "source": json.loads(state.read_text("utf-8")) if state.is_file() else {},
        "toolchain": toolchain,
        "stages": {stamp.pop("stage"): stamp for stamp in stamps},
    }
