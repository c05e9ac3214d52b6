"""Run-time dependencies of a set, so that its index needs no other."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.errors import UnmetDependency
from rocm_wheels.publish.dist import open_dist
from rocm_wheels.publish.install import interpreter_path, why_not_installable, without_secrets


def wheelhouse(wheels: Sequence[Path], pythons: Sequence[str], folder: Path, *, console: Console) -> tuple[Path, ...]:
    """Take or build with pip every wheel that ``wheels`` need to run and put it into ``folder``; returns the new ones.

    pip works with this machine's own configuration (its index, its proxies) and with each interpreter of ``pythons``;
    of ``wheels`` each Python gets those that it can install. The set itself is given as files, so that no public
    package of the same name can take its place.

    Raises :class:`UnmetDependency` when pip fails or when NVIDIA packages would come in, which means that a CUDA build
    was chosen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {wheel.name for wheel in wheels}
    added: set[Path] = set()
    for python in pythons:
        reasons = {wheel: why_not_installable(wheel, python) for wheel in wheels}
        fitting = [wheel for wheel, reason in reasons.items() if reason is None]
        if not fitting:
            console.warn(f"nothing to collect for {python}: {'; '.join(sorted(set(filter(None, reasons.values()))))}")
            continue
        with tempfile.TemporaryDirectory(dir=folder, prefix=".wheelhouse-") as scratch:
            with console.step(f"collect what {len(fitting)} wheels need on {python}"):
                _pip_wheel(python, fitting, Path(scratch))
            found = [path for path in sorted(Path(scratch).glob("*.whl")) if path.name not in own]
            _refuse_cuda(found)
            for path in found:
                if not (folder / path.name).exists():
                    added.add(path.replace(folder / path.name))
    return tuple(sorted(added))


def _pip_wheel(python: str, wheels: Sequence[Path], folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        interpreter_path(python),
        "wheel",
        "--quiet",
        "--no-input",
        "--prefer-binary",
    ]
    command += ["--wheel-dir", str(folder), *(str(wheel.absolute()) for wheel in wheels)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnmetDependency(
            f"pip cannot collect the dependencies for {python}:\n{without_secrets(done.stderr)[-1500:]}",
            remedy="look at the names above; put wheels that you have into a folder and set PIP_FIND_LINKS to it",
        )


def _refuse_cuda(found: Sequence[Path]) -> None:
    nvidia = [path.name for path in found if open_dist(path).name.startswith("nvidia-")]
    if nvidia:
        raise UnmetDependency(
            f"the dependencies bring NVIDIA packages ({', '.join(nvidia)}): a CUDA build was chosen somewhere",
            remedy="give the ROCm wheel of that companion together with the others",
        )
