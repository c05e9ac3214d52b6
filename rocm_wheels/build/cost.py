"""What a build will take, from figures that were measured: core-hours, hours, disk; one more target, one more Python.

The figures are the release row's until a build of this machine was measured to the end; then that one's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_wheels.build.ninja_log import Step, totals
from rocm_wheels.console import duration
from rocm_wheels.release import Cost

if TYPE_CHECKING:
    from rocm_wheels.build.report import Phase

# A figure is learnt from a build that really compiled, not from one that the cache answered.
_LEARN_BELOW = 0.1


@dataclass(frozen=True)
class Estimate:
    """Seconds of one core, and by the clock with the plan's jobs."""

    core_seconds: float
    seconds: float
    one_more_arch: float
    one_more_python: float

    def lines(self) -> dict[str, str]:
        """What ``--dry-run`` shows."""
        by_the_clock = f"{duration(self.seconds)} by the clock"
        return {
            "estimate": f"{duration(self.core_seconds)} of one core, {by_the_clock}, nothing cached",
            "one more target": f"{duration(self.one_more_arch)} of one core",
            "one more Python": f"{duration(self.one_more_python)} of one core",
        }


def estimate(cost: Cost, *, archs: int, jobs: int) -> Estimate:
    """What a build of ``archs`` targets takes. A kernel is compiled for one target after the other."""
    per_arch = cost.hip_steps * cost.hip_seconds
    core = cost.cxx_steps * cost.cxx_seconds + per_arch * archs
    return Estimate(core, core / jobs, per_arch, cost.python_steps * cost.cxx_seconds)


def step_seconds(cost: Cost, archs: int) -> dict[str, float]:
    """Expected seconds of a step by its kind (see :mod:`.ninja_log`)."""
    return {"C++": cost.cxx_seconds, "HIP": cost.hip_seconds * archs, "link": 2 * cost.cxx_seconds}


def known_cost(row: Cost | None, measured: Path) -> Cost | None:
    """The figures in ``measured`` if a build was measured on this machine, else those of the release ``row``."""
    if row is None:
        return None
    try:
        found = json.loads(measured.read_text("utf-8"))
        return dataclasses.replace(row, **{key: found[key] for key in ("cxx_seconds", "hip_seconds", "job_memory")})
    except (OSError, ValueError, KeyError, TypeError):
        return row


def learn(steps: Iterable[Step], took: Phase, *, archs: int, measured: Path) -> None:
    """Write what the finished compile took to ``measured``, unless the compiler cache did much of it."""
    done, calls = totals(steps), took.compiler_cache
    if any(kind not in done or kind not in calls or calls[kind].rate > _LEARN_BELOW for kind in ("C++", "HIP")):
        return
    mean = {kind: seconds / number for kind, (number, seconds) in done.items()}
    figures = {
        "cxx_seconds": round(mean["C++"], 2),
        "hip_seconds": round(mean["HIP"] / archs, 2),
        "job_memory": round(took.largest_process / 1e9, 2),
    }
    measured.parent.mkdir(parents=True, exist_ok=True)
    beside = measured.with_suffix(".part")
    beside.write_text(json.dumps(figures, sort_keys=True) + "\n", "utf-8")
    beside.replace(measured)
