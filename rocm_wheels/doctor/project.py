"""This project's own data and the tools of its environment: pins, patches, archs, versions."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from rocm_wheels.build.image import DOCKER, image_inputs
from rocm_wheels.config import PROJECT_ROOT, Settings
from rocm_wheels.doctor.model import Result, State
from rocm_wheels.gpu import parse_archs
from rocm_wheels.release import Image, Release, load_matrix
from rocm_wheels.source import classify, plan_checkout

_PINNED = re.compile(r"^[A-Za-z0-9._-]+(?:\[[\w,]+\])?==\S+")


def check_tools(settings: Settings) -> Iterator[Result]:
    """Versions of the packages that this process runs with, against what pyproject.toml asks for."""
    wrong = []
    wanted = [Requirement(text) for text in importlib.metadata.requires("rocm-wheels") or ()]
    for need in wanted:
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is missing")
            continue
        if not need.specifier.contains(version, prereleases=True):
            wrong.append(f"{need.name} {version} is not {need.specifier}")
    if wrong:
        yield Result("tools", State.FAILED, "; ".join(wrong), f"{sys.executable} -m pip install -e {PROJECT_ROOT}")
    else:
        yield Result(
            "tools", State.OK, f"Python {sys.version.split()[0]}, {len(wanted)} packages as pyproject.toml asks"
        )


def check_pins(settings: Settings, folder: Path = DOCKER) -> Iterator[Result]:
    """The release data, the Dockerfiles and the requirement files that they copy: every line with version and hash."""
    matrix = load_matrix()
    loose = []
    for image in matrix.images.values():
        for path in image_inputs(image, folder=folder):
            if path.name.endswith("requirements.txt"):
                loose += [f"{path.name}: {name}" for name in _loose(path.read_text("utf-8"))]
    if loose:
        remedy = "uv pip compile --generate-hashes writes such a file"
        yield Result("pins", State.FAILED, f"no version or hash: {', '.join(sorted(set(loose)))}", remedy)
    else:
        yield Result("pins", State.OK, f"{len(matrix.releases)} releases and {len(matrix.images)} images are pinned")


def _loose(text: str) -> Iterator[str]:
    """Requirements of a file that lack a version or a hash."""
    for line in text.replace("\\\n", " ").splitlines():
        pinned = _PINNED.match(line) and "--hash=sha256:" in line
        if line.strip() and not line.lstrip().startswith(("#", "-")) and not pinned:
            yield line.split()[0]


def check_patches(settings: Settings) -> Iterator[Result]:
    """The series of the release that would be built, put on its source where that is at hand."""
    release = _release(settings)[0]
    plan = plan_checkout(release, settings=settings)
    base = plan.series("base")
    if release.source.kind != "directory":
        found = f"{len(plan.patches)} patches of {release.name} can be read; its source is not fetched yet"
        yield Result("patches", State.UNKNOWN, found, f"invoke fetch {release.name} DIR tries them in minutes")
        return
    states = classify(base, PROJECT_ROOT / release.source.path)
    bad = [status for status in states if status.state not in ("applies", "already applied")]
    for status in bad:
        yield Result("patches", State.FAILED, f"{status.patch.name} {status.state}: {status.reason}", "mend the patch")
    if not bad:
        yield Result("patches", State.OK, f"{len(base)} of {len(plan.patches)} patches of {release.name} apply")


def check_archs(settings: Settings) -> Iterator[Result]:
    """The GPU targets that would be built against what the image's compiler and rocBLAS have."""
    release, image = _release(settings)
    archs = parse_archs(settings.arch) if settings.arch else release.archs
    unknown = [arch for arch in archs if not image.can_compile(arch)]
    without = [arch for arch in archs if image.rocblas and arch.partition(":")[0] not in image.rocblas]
    where = f"{image.name} (ROCm {image.rocm})"
    if unknown:
        remedy = f"it knows {' '.join(image.compiles)}"
        yield Result("archs", State.FAILED, f"the compiler of {where} does not know {' '.join(unknown)}", remedy)
    elif without:
        remedy = "matrix products abort on these cards; leave them out, or take an image whose rocBLAS has them"
        yield Result("archs", State.WARNING, f"rocBLAS of {where} has no kernels for {' '.join(without)}", remedy)
    else:
        yield Result("archs", State.OK, f"{' '.join(archs)}: compiler and rocBLAS of {where}")


def _release(settings: Settings) -> tuple[Release, Image]:
    """Release and image of the settings; raises the errors of the release data."""
    matrix = load_matrix()
    image = matrix.image(settings.image)
    return matrix.release(settings.release).on(image), image
