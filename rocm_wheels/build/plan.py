"""What a build will do, decided before anything is touched.

A build tree belongs to its fingerprint: source pin and patches, hipify, Python ABI, ROCm, archs, image and options.
Another fingerprint is another tree, so a warm tree is never used with other inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rocm_wheels.build import commands
from rocm_wheels.build.compiler_cache import remote_storage
from rocm_wheels.build.cost import estimate, known_cost
from rocm_wheels.build.image import compilers_digest, image_tag
from rocm_wheels.build.memory import BYTES_PER_JOB, default_jobs
from rocm_wheels.config import Settings
from rocm_wheels.errors import UsageError, nearest
from rocm_wheels.gpu import parse_archs
from rocm_wheels.release import Image, Matrix, Release, load_matrix
from rocm_wheels.release.possible import Combination, check
from rocm_wheels.source import CheckoutPlan, plan_checkout

# Raised by hand when a stage changes in a way that an unfinished tree must not be continued with.
_LAYOUT = 2

STAGES = ("fetch", "hipify", "configure", "canary", "compile", "wheel")


@dataclass(frozen=True, kw_only=True)
class BuildPlan:
    """One wheel to build: what, from which source, in which image, where."""

    release: Release
    image: Image
    image_tag: str
    python: str
    archs: tuple[str, ...]
    version: str
    jobs: int
    until: str
    checkout: CheckoutPlan
    fingerprint: str
    tree: Path
    ccache: Path
    measured: Path
    remote_cache: str = field(default="", repr=False)

    @property
    def source(self) -> Path:
        """The patched, hipified source tree."""
        return self.tree / "src"

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages to run, in order."""
        return STAGES[: STAGES.index(self.until) + 1]

    def as_dict(self) -> dict[str, object]:
        """The plan as ``--dry-run --json`` prints it."""
        cost = known_cost(self.release.cost, self.measured)
        figures = estimate(cost, archs=len(self.archs), jobs=self.jobs).lines() if cost else {}
        return {
            "release": self.release.name,
            "python": self.python,
            "image": self.image_tag,
            "rocm": self.image.rocm,
            "archs": list(self.archs),
            "version": self.version,
            "jobs": self.jobs,
            "stages": list(self.stages),
            "fingerprint": self.fingerprint,
            "tree": str(self.tree),
            **figures,
        }


def plan_build(
    matrix: Matrix, settings: Settings, python: str, *, until: str = STAGES[-1], version: str = ""
) -> BuildPlan:
    """The plan for one Python from the settings and the release data.

    ``version`` replaces the wheel's version, by default ``<release>+rocm<X.Y>``. Raises the errors of the release
    data for an impossible combination, :class:`UsageError` for an unknown stage.
    """
    if until not in STAGES:
        raise UsageError(f"there is no build stage {until!r}", remedy=nearest(until, STAGES))
    release = matrix.release(settings.release)
    image = matrix.image(settings.image)
    archs = parse_archs(settings.arch) if settings.arch else ()
    check(matrix, Combination(release=release, image=image, python=python, archs=archs))
    release = release.on(image)
    archs = archs or release.archs
    version = version or f"{release.version}+rocm{image.rocm}"
    checkout = plan_checkout(release, settings=settings)
    measured = settings.cache / "measured" / f"{release.name}-{image.name}.json"
    cost = known_cost(release.cost, measured)
    plan = BuildPlan(
        release=release,
        image=image,
        image_tag=image_tag(image),
        python=python,
        archs=archs,
        version=version,
        jobs=settings.jobs or default_jobs(int(cost.job_memory * 1e9) if cost else BYTES_PER_JOB),
        until=until,
        checkout=checkout,
        fingerprint="",
        tree=Path(),
        ccache=settings.cache / "ccache",
        measured=measured,
        remote_cache=remote_storage(settings.compiler_cache),
    )
    fingerprint = _fingerprint(plan)
    name = f"{release.name}-cp{python.replace('.', '')}-{fingerprint[:12]}"
    return replace(plan, fingerprint=fingerprint, tree=settings.cache / "trees" / name)


def plan_builds(pythons: Sequence[str], settings: Settings, *, until: str, version: str = "") -> list[BuildPlan]:
    """A plan per Python; for all that release and image share when none is named."""
    matrix = load_matrix()
    release = matrix.release(settings.release)
    image = matrix.image(settings.image)
    wanted = pythons or [p for p in release.pythons if p in image.pythons] or release.pythons[-1:]
    return [plan_build(matrix, settings, python, until=until, version=version) for python in wanted]


def _fingerprint(plan: BuildPlan) -> str:
    """Hash of all that decides the bytes of the wheel: what else differs may continue in the same tree."""
    environment = {k: v for k, v in commands.environment(plan).items() if k not in commands.WITHOUT_EFFECT}
    facts = [
        _LAYOUT,
        plan.checkout.fingerprint,
        repr(plan.release.recipe),
        plan.python,
        compilers_digest(plan.image),
        environment,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
