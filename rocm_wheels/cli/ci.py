"""Pipelines for the user's own CI system."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import whole_number
from rocm_wheels.console import exit_codes


@task(
    iterable=["image", "python", "arch"],
    help={
        "system": "gitlab or github",
        "dest": "root of the repository to write to",
        "release": "release to build; default: the setting",
        "image": "builder image, which is a ROCm release (repeatable); default: all of the release",
        "python": "Python to build for (repeatable); default: all that release and image share",
        "arch": "GPU targets of one wheel, separated by ';' (repeatable: one wheel each); default: the release's",
        "registry": "where builder images are kept; default: the CI system's own registry",
        "limit": "MiB that one artifact may weigh",
    },
)
def ci(
    _: Context,
    system: str,
    dest: str = ".",
    release: str = "",
    image: list[str] | None = None,
    python: list[str] | None = None,
    arch: list[str] | None = None,
    registry: str = "",
    limit: str = "2000",
) -> None:
    """Write a pipeline that builds, verifies and publishes a release's wheels.

    Example: invoke ci gitlab --release minitorch --python 3.13 --arch gfx1030 --arch gfx1100
    """
    from rocm_wheels import ci as pipelines
    from rocm_wheels import config

    with exit_codes():
        settings = config.load({"release": release or None})
        cells = pipelines.plan_cells(settings, images=image or (), pythons=python or (), archs=arch or ())
        files = pipelines.render(system, cells, registry=registry, limit_mib=whole_number(limit, "limit"))
        for path in pipelines.write(files, Path(dest)):
            print(path)
