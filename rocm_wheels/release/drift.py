"""Whether the release data still says what the official wheels say: commit, Requires-Python, Triton, companions.

pip finds each wheel and its metadata on the index that this machine uses, as it does for an install. Only the commit
is inside a wheel; it is read from the macOS wheel, the smallest.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from rocm_wheels.console import Console
from rocm_wheels.errors import IndexSilent
from rocm_wheels.release.facts import Facts
from rocm_wheels.release.model import Release
from rocm_wheels.release.ranges import read_member

MAC = ("macosx_14_0_arm64",)
LINUX = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")

State = Literal["same", "differs", "new", "not there"]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """One cell beside what the index says.

    ``new`` is a cell that was unknown, ``not there`` a wheel that the index does not have.
    """

    release: str
    column: str
    ours: str
    found: str
    state: State


def check(releases: Iterable[Release], *, console: Console) -> tuple[Drift, ...]:
    """Every cell that wheels on the index can confirm, for every release that has facts."""
    found: list[Drift] = []
    for release in releases:
        if release.facts:
            with console.step(f"look up {release.name} on the index"):
                found += _release(release, release.facts)
    return tuple(found)


def _release(release: Release, facts: Facts) -> Iterator[Drift]:
    plain = [p for p in release.pythons if not p.endswith("t")]
    python = "3.10" if "3.10" in plain else plain[-1]
    requirement = f"{release.distribution}=={release.version}"

    def drift(column: str, ours: str | None, found: str) -> Drift:
        state: State = "new" if ours is None else "same" if ours == found else "differs"
        return Drift(release=release.name, column=column, ours=ours or "", found=found, state=state)

    try:
        linux = wheel(requirement, LINUX, python)
        window = linux["metadata"].get("requires_python", "")
        same = facts.requires_python.known and SpecifierSet(window) == SpecifierSet(facts.requires_python.value or "")
        yield drift(
            "requires_python", facts.requires_python.value, facts.requires_python.value or "" if same else window
        )
        yield drift("triton", facts.triton.value, str(_asked(linux, "triton")).removeprefix("=="))
        yield drift("commit", facts.commit.value, commit(wheel(requirement, MAC, python)))
    except IndexSilent as error:
        yield Drift(release=release.name, column="wheel", ours=requirement, found=error.message, state="not there")
    for column, companion in (("vision", "torchvision"), ("audio", "torchaudio")):
        version = getattr(facts, column).value
        if version:
            yield _companion(release, column, f"{companion}=={version}", python)


def _companion(release: Release, column: str, requirement: str, python: str) -> Drift:
    """Whether a companion takes this very release; one that names no version contradicts nothing."""
    try:
        asked = _asked(wheel(requirement, LINUX, python), release.distribution)
    except IndexSilent as error:
        return Drift(release=release.name, column=column, ours=requirement, found=error.message, state="not there")
    found = f"{requirement} asks for {release.distribution}{asked or ' in any version'}"
    state: State = "same" if asked.contains(release.version) else "differs"
    return Drift(release=release.name, column=column, ours=requirement, found=found, state=state)


def _asked(report: dict[str, Any], name: str) -> SpecifierSet:
    """The versions of ``name`` that a wheel asks for on Linux; any for none."""
    for text in report["metadata"].get("requires_dist", []):
        requirement = Requirement(text)
        if requirement.name == name and "extra ==" not in str(requirement.marker):
            return requirement.specifier
    return SpecifierSet()


def commit(report: dict[str, Any]) -> str:
    """``git_version`` of a torch wheel that pip has found."""
    url = report["download_info"]["url"]
    try:
        text = read_member(url, "torch/version.py").decode()
    except (OSError, KeyError, BadZipFile) as error:
        raise IndexSilent(f"torch/version.py of {url.rpartition('/')[2]} cannot be read: {error}") from error
    found = re.search(r"^git_version = '([0-9a-f]{40})'", text, re.MULTILINE)
    return found[1] if found else ""


def wheel(requirement: str, platforms: Sequence[str], python: str) -> dict[str, Any]:
    """What pip reports of the wheel that it would install; raises :class:`IndexSilent`."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-index-") as folder:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps"]
        command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}", f"--target={folder}/t"]
        command += [*(f"--platform={platform}" for platform in platforms), f"--report={folder}/report", requirement]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or [done.stderr.strip()]
            raise IndexSilent(f"{requirement} for Python {python}: {reason[-1].removeprefix('ERROR: ')}")
        found: dict[str, Any] = json.loads(Path(folder, "report").read_text("utf-8"))["install"][0]
    return found
