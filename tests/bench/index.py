"""An index of ten thousand files: how long a first and a later update take, beside dumb-pypi on the same files."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pypi_simple import ProjectPage

from rocm_wheels.console import Console, print_table
from rocm_wheels.publish import update_index
from rocm_wheels.publish.index import indexed_files
from tests.publish_wheels import make_wheel

CONSOLE = Console(quiet=True)


def main(argv: Sequence[str]) -> None:
    """Print a table of seconds; every page is read by pypi-simple in between."""
    parser = argparse.ArgumentParser(prog="nox -s bench -- index", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    options = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-bench-") as scratch:
        for projects in (100, 1):
            rows += measure(Path(scratch) / str(projects), options.files, projects)
    print_table(("files", "projects", "step", "rocm-wheels, s", "dumb-pypi, s"), rows)


def measure(folder: Path, files: int, projects: int) -> list[tuple[object, ...]]:
    """One shape of index: all new, one file new, nothing new."""
    model = make_wheel(folder / "model", name="p", version="1")
    wheels = folder / "wheels"
    wheels.mkdir()
    for number in range(files):
        shutil.copyfile(model, wheels / f"p{number % projects}-{number // projects}-py3-none-any.whl")
    rows: list[tuple[object, ...]] = []
    before: Path | None = None
    for step in ("all new", "one new", "nothing new"):
        if step == "one new":
            shutil.copyfile(model, wheels / f"p0-{files}-py3-none-any.whl")
        ours = seconds(lambda: update_index(wheels, console=CONSOLE))
        check(wheels)
        listed = package_list(wheels, folder / f"{step}.jsonl")
        theirs = seconds(dumb_pypi, listed, before, folder / "dumb")
        before = listed
        rows.append((files, projects, step, f"{ours:.2f}", f"{theirs:.2f}"))
    return rows


def seconds(run: Callable[..., object], *arguments: object) -> float:
    """How long ``run`` takes."""
    began = time.monotonic()
    run(*arguments)
    return time.monotonic() - began


def check(wheels: Path) -> None:
    """Every page is one for pypi-simple and names only files that are there."""
    there = {path.name for path in wheels.iterdir()}
    named = set()
    for page in (wheels / "simple").glob("*/index.json"):
        found = ProjectPage.from_json_data(json.loads(page.read_bytes()), base_url="http://x/simple/p/")
        named |= {package.filename for package in found.packages}
    assert named == {name for name in there if name.endswith(".whl")}


def package_list(wheels: Path, path: Path) -> Path:
    """The list that dumb-pypi reads in the place of the files; it computes no hashes itself."""
    lines = [json.dumps({"filename": w.filename, "hash": f"sha256={w.sha256}"}) for w in indexed_files(wheels)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def dumb_pypi(listed: object, before: object, output: object) -> None:
    """dumb-pypi on a list, with the list of the run before if there was one."""
    command = [sys.executable, "-m", "dumb_pypi.main", "--package-list-json", str(listed), "--no-per-release-json"]
    command += ["--packages-url", "../../", "--output-dir", str(output)]
    if before:
        command += ["--previous-package-list-json", str(before)]
    subprocess.run(command, check=True)
