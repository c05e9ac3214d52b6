"""The rendered GitLab pipeline by a real runner: gitlab-ci-local, jobs in the builder image, minitorch to an index.

About six minutes with the image at hand. Needs npm, rsync and podman or docker. gitlab-ci-local does not hand the
variables of a matrix to a child pipeline, so the child is run on its own with the variables of its row.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocm_wheels import ci
from rocm_wheels.build.container import ContainerEngine
from rocm_wheels.build.engine import find_engine
from rocm_wheels.build.image import REPOSITORY, ensure_image
from rocm_wheels.config import PROJECT_ROOT, load
from rocm_wheels.console import Console
from rocm_wheels.release import load_matrix

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("npm") and shutil.which("rsync")), reason="needs npm and rsync"),
]
# The last version that runs on Node.js 20.
RUNNER = "gitlab-ci-local@4.60.0"
HELPER = "localhost/rocm-wheels-test/ci-helper:latest"
CONTAINERS = """
[containers]
netns = "host"
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerEngine:
    """An engine, with what this machine's own measures tell it also told to the runner, which knows none of them."""
    settings, console, matrix = load(), Console(), load_matrix()
    found = find_engine("podman", console=console, settings=settings)
    assert isinstance(found, ContainerEngine)
    ensure_image(matrix.image("debian-trixie"), engine=found, settings=settings, console=console)
    (tmp_path / "containers.conf").write_text(CONTAINERS, "utf-8")
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    (tmp_path / "Dockerfile").write_text(
        f"FROM {matrix.image('debian-trixie').base}\nRUN apt-get update && apt-get install -y rsync\n"
    )
    found.build(tmp_path / "Dockerfile", HELPER, log=tmp_path / "helper.log", on_line=lambda line: None)
    return found


def runner(folder: Path) -> str:
    """gitlab-ci-local from PATH, or from npm, which compiles a part of it."""
    if found := shutil.which("gitlab-ci-local"):
        return found
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--prefix", str(folder), RUNNER], check=True)
    return str(folder / "node_modules/.bin/gitlab-ci-local")


def leftovers() -> set[str]:
    """The volumes that the runner keeps its jobs' files in."""
    listed = subprocess.run(["podman", "volume", "ls", "--quiet"], capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split() if name.startswith("gcl-")}


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    before = leftovers()
    yield
    for name in leftovers() - before:
        users = ["podman", "ps", "--all", "--quiet", "--filter", f"volume={name}"]
        for container in subprocess.run(users, capture_output=True, text=True, check=True).stdout.split():
            subprocess.run(["podman", "rm", "--force", container], check=True)
        subprocess.run(["podman", "volume", "rm", name], check=True)


def test_the_gitlab_pipeline_carries_minitorch_from_source_to_index(tmp_path: Path, engine: ContainerEngine) -> None:
    (cell,) = ci.plan_cells(load(), images=["debian-trixie"], pythons=["3.13"], archs=["gfx1030"])
    repo = tmp_path / "repo"
    subprocess.run(["git", "clone", "-q", str(PROJECT_ROOT), str(repo)], check=True)
    git = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    ci.write(ci.render("gitlab", [cell], registry=REPOSITORY), repo)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "pipeline"], check=True)
    subprocess.run([*git, "remote", "set-url", "origin", "https://gitlab.example/team/rocm-wheels.git"], check=True)

    names = {name.upper(): value for name, value in vars(cell).items()} | {
        "REGISTRY": REPOSITORY,
        "ROCM_WHEELS_INDEX": "dir:index",
        "CI_COMMIT_REF_PROTECTED": "true",
    }
    command = [runner(tmp_path / "npm"), "--file", ".gitlab/rocm-wheels.yml"]
    command += ["--container-executable", "podman", "--pull-policy", "if-not-present", "--helper-image", HELPER]
    for name, value in names.items():
        command += ["--variable", f"{name}={value}"]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    for job in ("build", "repair", "verify", "publish"):
        assert f"PASS  {job}" in done.stdout
    assert f"minitorch-{cell.release.partition('-')[2]}+rocm{cell.rocm}-cp313" in done.stdout
