"""The base of a builder image: pulled if a registry answers, else made from an apt mirror under the same name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rocm_wheels.build.container import ContainerEngine
from rocm_wheels.build.process import Streamed, reaped
from rocm_wheels.build.setup import ensure_packages
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.diagnose import first_error
from rocm_wheels.errors import BaseUnavailable
from rocm_wheels.release import Image

# A base is about 50 MB: a registry that has not sent it by then is not going to help.
_PULL_SECONDS = 120


def ensure_base(image: Image, *, engine: ContainerEngine, settings: Settings, console: Console) -> None:
    """Have ``image.base`` in the engine's storage; nothing happens when it is there.

    Raises :class:`BaseUnavailable` when no registry and no mirror gives it.
    """
    if engine.image_exists(image.base):
        return
    with console.step(f"pulling {image.base}"):
        refusal = engine.pull(image.base, _PULL_SECONDS)
    if not refusal:
        return
    if not image.suite:
        raise BaseUnavailable(
            f"{image.base} cannot be pulled ({refusal[:200]}), and no apt mirror can make it",
            remedy=f"import it as {image.base} by hand on a machine whose registry answers (save, then load)",
        )
    console.line(f"  no registry gave it ({refusal[:200]}): making it from an apt mirror")
    if image.stale_ok:
        console.line(f"  a Release file of {image.suite} past its Valid-Until is taken: the suite moves")
    ensure_packages("base", console)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-base-") as folder:
        tar = Path(folder) / f"{image.suite}.tar"
        with console.step(f"bootstrapping Debian {image.suite}"):
            _bootstrap(image, tar, settings, refusal)
        with console.step(f"importing {image.base}"):
            engine.import_base(tar, image.base)


def bootstrap_command(image: Image, tar: Path, settings: Settings) -> list[str]:
    """The mmdebstrap command that writes the smallest system of the image's suite to ``tar``."""
    command = ["mmdebstrap", "--variant=minbase"]
    if settings.base_mirror.startswith("https:"):
        command.append("--include=ca-certificates")
    if image.stale_ok:
        command.append('--aptopt=Acquire::Check-Valid-Until "false"')
    return [*command, image.suite, str(tar), *([settings.base_mirror] if settings.base_mirror else [])]


def _bootstrap(image: Image, tar: Path, settings: Settings, refusal: str) -> None:
    lines: list[str] = []
    process = Streamed(reaped(bootstrap_command(image, tar, settings)), os.environ | {"LC_ALL": "C.UTF-8"})
    try:
        code = process.stream(lines.append)
    finally:
        process.close(patience=5)
    if code:
        raise BaseUnavailable(
            f"{image.base} can neither be pulled ({refusal[:200]}) nor made by mmdebstrap:\n"
            + first_error("\n".join(lines)),
            remedy="set base_mirror (ROCM_WHEELS_BASE_MIRROR) to an apt mirror that this machine reaches, "
            f"or import a Debian {image.suite} root file system as {image.base} by hand",
        )
