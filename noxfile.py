"""Sessions: building, testing and measuring. Tasks for single steps are in tasks.py (`invoke -l`)."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys

import nox

from rocm_wheels.release import load_matrix

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "tests"]

for _chatty in ("urllib3", "keyring"):  # nox lets every library log to the terminal
    logging.getLogger(_chatty).setLevel(logging.WARNING)

PYTHONS = sorted(
    {p for release in load_matrix().releases if release.images for p in release.pythons},
    key=lambda python: (int(python[2:].rstrip("t")), python),
)


def _options(session: nox.Session, name: str) -> argparse.Namespace:
    from rocm_wheels.build.plan import STAGES

    example = f"example: nox -s {name} -- --release 2.6.0 --arch gfx1030 --until canary"
    parser = argparse.ArgumentParser(prog=f"nox -s {name} --", description="Build ROCm wheels.", epilog=example)
    parser.add_argument("--release", help="framework release, such as 2.6.0 or minitorch (`invoke releases`)")
    parser.add_argument("--image", help="builder image")
    parser.add_argument("--arch", help="GPU targets separated by ';'; default: the release's own")
    parser.add_argument("--engine", help="docker, podman or none; default: whichever works")
    parser.add_argument("--jobs", type=int, help="compile jobs; default: from cores and memory")
    parser.add_argument("--wheel-version", default="", help="version of the wheel; default: RELEASE+rocmX.Y")
    parser.add_argument("--until", default=STAGES[-1], metavar="STAGE", help=f"last stage: {', '.join(STAGES)}")
    parser.add_argument("--fresh", action="store_true", help="throw the build tree away first")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--json", action="store_true", help="results as JSON")
    return parser.parse_args(session.posargs)


def _build(session: nox.Session, name: str, pythons: list[str]) -> None:
    from rocm_wheels import config
    from rocm_wheels.cli.build import build
    from rocm_wheels.console import exit_codes

    options = _options(session, name)
    known = {field.name for field in dataclasses.fields(config.Settings)}
    with exit_codes(as_json=options.json):
        settings = config.load({k: v for k, v in vars(options).items() if k in known})
        build(pythons, settings, options)


def _register(python: str) -> None:
    @nox.session(name=f"build-{python}")
    def build_one(session: nox.Session) -> None:
        _build(session, f"build-{python}", [python])

    build_one.__doc__ = f"Build a release for Python {python} in its builder container."


for _python in PYTHONS:
    _register(_python)


@nox.session(name="build")
def build_all(session: nox.Session) -> None:
    """Build a release for every Python that it and the image share."""
    _build(session, "build", [])


@nox.session
def quickstart(session: nox.Session) -> None:
    """The main job on the embedded default: set up, build, repair, verify, publish, install back."""
    from rocm_wheels import config
    from rocm_wheels.console import exit_codes
    from rocm_wheels.quickstart import quickstart as run

    parser = argparse.ArgumentParser(prog="nox -s quickstart --", description="The whole pipeline with minitorch.")
    parser.add_argument("--engine", help="docker, podman or none; default: whichever works")
    options = parser.parse_args(session.posargs)
    with exit_codes():
        run(config.load(vars(options)))


@nox.session
def lint(session: nox.Session) -> None:
    """ruff and mypy."""
    for tool in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        session.run(sys.executable, "-m", *tool)  # those of this environment: its bin need not be on PATH


@nox.session
def tests(session: nox.Session) -> None:
    """All tests that a new machine passes within 40 minutes; arguments go to pytest."""
    from rocm_wheels.build.setup import ensure_packages
    from rocm_wheels.console import Console, exit_codes

    with exit_codes():
        ensure_packages("tests", Console())
    chosen = session.posargs or ["tests/unit", "tests/integration"]
    session.run(sys.executable, "-m", "pytest", "--durations=25", *chosen)


@nox.session
def unit(session: nox.Session) -> None:
    """Unit tests: seconds, no network, no container."""
    session.run(sys.executable, "-m", "pytest", "tests/unit", *session.posargs)


@nox.session(name="tests-slow")
def tests_slow(session: nox.Session) -> None:
    """Tests that take hours; arguments go to pytest, such as the one to run."""
    session.run(sys.executable, "-m", "pytest", *(session.posargs or ["tests/slow"]))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure beside rivals; for example: nox -s bench -- repair."""
    session.run(sys.executable, "-m", "tests.bench", *session.posargs)
