"""``python3 -m rocm_wheels NOX-ARGUMENTS``: nox on a machine that has nothing but Python and git.

Makes ``.venv`` with this project in it when it is missing or out of date, then hands over to nox. Uses the standard
library only, since nothing else is there yet.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def main() -> int:
    """Set up ``.venv`` if needed and run nox in it; returns nox's exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036  this file runs before anything has checked
        print(f"error: Python 3.11 or newer is needed, this is {sys.version.split()[0]}", file=sys.stderr)
        return 11
    python = VENV / "bin" / "python"
    stamp = VENV / ".rocm-wheels"
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text("ascii") != digest:
        if code := _install(python):
            return code
        stamp.write_text(digest, "ascii")
    os.chdir(ROOT)
    return os.execv(python, [str(python), "-m", "nox", *sys.argv[1:]])


def _install(python: Path) -> int:
    print(f"setting up {VENV} (once, about a minute)", file=sys.stderr)
    if importlib.util.find_spec("ensurepip") is None and (code := _install_venv_package()):
        return code
    shutil.rmtree(VENV, ignore_errors=True)
    groups = ("test", "lint", "servers")
    steps = (
        [sys.executable, "-m", "venv", str(VENV)],
        [str(python), "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"],  # 25.1 knows dependency groups
        [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "-e",
            str(ROOT),
            *(f"--group={ROOT}/pyproject.toml:{g}" for g in groups),
        ],
    )
    for step in steps:
        if code := subprocess.run(step, check=False).returncode:
            print(f"error: `{' '.join(step)}` ended with {code}", file=sys.stderr)
            return 10
    return 0


def _install_venv_package() -> int:
    """Debian and Ubuntu ship Python without ensurepip; as root install the package, else say which."""
    package = f"python3.{sys.version_info.minor}-venv"
    command = ["apt-get", "install", "-y", "--no-install-recommends", package]
    if os.geteuid() or not shutil.which("apt-get"):
        print(f"error: this Python has no ensurepip\n  → sudo {' '.join(command)}", file=sys.stderr)
        return 10
    subprocess.run(["apt-get", "update"], check=False)
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
