"""What the compiler cache saves, on minitorch: a second Python, another directory, another machine of the team.

``python -m tests.bench build`` prints a table; the integration tests hold the same figures to their bounds.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels import config
from rocm_wheels.build.compiler_cache import Calls
from rocm_wheels.build.plan import plan_builds
from rocm_wheels.build.report import Phase
from rocm_wheels.build.run import build
from rocm_wheels.console import Console, print_table

COMPILING = ("canary", "compile")


@dataclass(frozen=True)
class Run:
    """One build: core-seconds of its compile stages, what the cache answered by language, hash of the wheel."""

    name: str
    core_seconds: float
    calls: dict[str, Calls]
    sha256: str


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A redis server of this run's own; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as server:
        try:
            while subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, check=False).returncode:
                if server.poll() is not None:
                    raise SystemExit(f"redis-server ended with {server.returncode}")
                time.sleep(0.05)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()


def measure(folder: Path, console: Console) -> dict[str, Run]:
    """Build minitorch four times below ``folder``, each time with less to compile than before."""
    with redis(folder) as remote:
        runs = [_run("empty cache", folder / "a", "3.13", console, remote=remote)]
        runs.append(_run("second Python", folder / "a", "3.11", console))
        shutil.copytree(folder / "a" / "ccache", folder / "b" / "ccache")
        runs.append(_run("another directory", folder / "b", "3.13", console))
        runs.append(_run("another machine", folder / "c", "3.13", console, remote=remote))
    return {run.name: run for run in runs}


def _run(name: str, cache: Path, python: str, console: Console, *, remote: str = "") -> Run:
    values = {"cache_dir": str(cache), "dist_dir": str(cache / "dist"), "compiler_cache": remote}
    settings = config.load({"release": "minitorch", **values})
    (plan,) = plan_builds([python], settings, until="wheel")
    (built,) = build([plan], settings=settings, console=console)
    assert built.wheel
    phases = [Phase.from_json((plan.tree / "stamps" / f"{stage}.json").read_text("utf-8")) for stage in COMPILING]
    calls: dict[str, Calls] = {}
    for phase in phases:
        for language, counted in phase.compiler_cache.items():
            calls[language] = calls.get(language, Calls()) + counted
    return Run(name, sum(p.core_seconds for p in phases), calls, hashlib.sha256(built.wheel.read_bytes()).hexdigest())


def main(argv: list[str]) -> None:
    """Print the runs as a table."""
    argparse.ArgumentParser(prog="nox -s bench -- build", description=__doc__).parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-bench-") as folder:
        runs = measure(Path(folder), Console())
    rows = [
        (r.name, f"{r.core_seconds:.1f}", "; ".join(f"{k}: {v}" for k, v in r.calls.items())) for r in runs.values()
    ]
    print_table(("build", "core-seconds of compiling", "compiler cache"), rows)
