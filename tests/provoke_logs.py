"""Make the logs of ``tests/data/logs`` again: ``python -m tests.provoke_logs [NAME …]``.

Needs podman or docker and a builder image. What the scripts print is kept as it is; only host names of package
registries would be taken out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.build.engine import find_engine
from rocm_wheels.build.image import ensure_image
from rocm_wheels.build.runner import Engine, Mount
from rocm_wheels.config import load
from rocm_wheels.console import Console
from rocm_wheels.release import load_matrix

LOGS = Path(__file__).parent / "data" / "logs"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One entry of recipes.toml."""

    name: str
    fault: str
    first: str
    script: str = ""  # none: written by hand in the real format
    needs: tuple[str, ...] = ()
    tmpfs: str = ""


def recipes() -> list[Recipe]:
    table = tomllib.loads((LOGS / "recipes.toml").read_text("utf-8"))
    return [Recipe(**{**entry, "needs": tuple(entry.get("needs", ()))}) for entry in table["recipe"]]


def provoke(recipe: Recipe, engine: Engine, image: str, wheels: Path) -> str:
    """Run the recipe in an empty directory of the image; what it printed."""
    for need in recipe.needs:
        name, _, python = need.partition(";")
        command = ["pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", python or "3.13"]
        subprocess.run([sys.executable, "-m", *command, "-d", str(wheels), name], check=True)
    lines: list[str] = []
    small = f"mkdir /small && mount -t tmpfs -o size={recipe.tmpfs} none /small && " if recipe.tmpfs else ""
    engine.run(
        image,
        ["/bin/sh", "-c", f"mkdir -p /build && cd /build && {small}exec /bin/sh -c '. /recipe' 2>&1"],
        mounts=(Mount(_script(recipe, wheels), "/recipe", read_only=True), Mount(wheels, "/wheels", read_only=True)),
        may_mount=bool(recipe.tmpfs),
        on_line=lines.append,
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _script(recipe: Recipe, wheels: Path) -> Path:
    path = wheels.parent / f"{recipe.name}.sh"
    path.write_text(recipe.script, "utf-8")
    return path


def main(names: Sequence[str]) -> None:
    console, settings, matrix = Console(), load(), load_matrix()
    with (
        find_engine(settings.engine, console=console, settings=settings) as engine,
        tempfile.TemporaryDirectory() as tmp,
    ):
        image = ensure_image(matrix.images["debian-trixie"], engine=engine, settings=settings, console=console).tag
        wheels = Path(tmp) / "wheels"
        wheels.mkdir()
        for recipe in recipes():
            if not recipe.script or (names and recipe.name not in names):
                continue
            with console.step(recipe.name):
                text = provoke(recipe, engine, image, wheels)
            (LOGS / f"{recipe.name}.log").write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
