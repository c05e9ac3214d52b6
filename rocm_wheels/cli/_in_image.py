"""Tasks that need ROCm at hand, run inside a builder image that has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.build.commands import PROJECT, project_task, task_environment
from rocm_wheels.build.engine import Mount, find_engine
from rocm_wheels.build.image import ensure_image
from rocm_wheels.config import PROJECT_ROOT, load
from rocm_wheels.console import Console
from rocm_wheels.errors import UnknownImage, nearest
from rocm_wheels.release import load_matrix


def run_in_image(image: str, words: Sequence[str], wheels: Path, dest: Path, console: Console) -> int:
    """Run the task ``words`` in a builder image, ``wheels`` at /wheels and ``dest`` at /dest; returns its exit code.

    Raises :class:`UnknownImage` and the errors of engines and images.
    """
    images, settings = load_matrix().images, load()
    if image not in images:
        raise UnknownImage(f"no builder image is called {image!r}", remedy=nearest(image, images))
    dest.mkdir(parents=True, exist_ok=True)
    with find_engine(settings.engine, console=console, settings=settings) as engine:
        return engine.run(
            ensure_image(images[image], engine=engine, settings=settings, console=console).tag,
            project_task(*words),
            mounts=(
                Mount(wheels, "/wheels", read_only=True),
                Mount(dest, "/dest"),
                Mount(PROJECT_ROOT, PROJECT, read_only=True),
            ),
            env=task_environment(),
            workdir="/dest",
            on_line=print,
        )
