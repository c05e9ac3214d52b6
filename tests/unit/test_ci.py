from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from rocm_wheels import ci
from rocm_wheels.build.plan import plan_build
from rocm_wheels.config import load
from rocm_wheels.errors import RocmWheelsError, UsageError
from rocm_wheels.release import load_matrix

SCHEMAS = {"gitlab": "vendor.gitlab-ci", "github": "vendor.github-workflows"}
CELLS = ci.plan_cells(load(), pythons=["3.11", "3.13"], archs=["gfx1030", "gfx1100;gfx1030"])


def parsed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return found


@pytest.mark.parametrize("system", ci.SYSTEMS)
def test_what_is_rendered_fits_the_vendors_schema(system: str, tmp_path: Path) -> None:
    paths = ci.write(ci.render(system, CELLS), tmp_path)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[system], *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_schema_would_find_a_wrong_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    path.write_text("image:\n  stage: build\n  script: [true]\n", "utf-8")  # `image` is no name for a job
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci", str(path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_there_is_a_cell_per_python_and_set_of_targets_with_the_plans_fingerprint() -> None:
    assert [(c.python, c.arch) for c in CELLS] == [
        ("3.11", "gfx1030"),
        ("3.11", "gfx1100;gfx1030"),
        ("3.13", "gfx1030"),
        ("3.13", "gfx1100;gfx1030"),
    ]
    assert len({cell.fingerprint for cell in CELLS}) == len(CELLS)
    plan = plan_build(load_matrix(), load({"arch": "gfx1030"}), "3.11")
    assert plan.fingerprint.startswith(CELLS[0].fingerprint)
    assert plan.image_tag.endswith(f":{CELLS[0].tag}")


def test_every_cell_is_a_row_of_the_matrix() -> None:
    gitlab = parsed(ci.render("gitlab", CELLS)[".gitlab-ci.yml"])
    github = parsed(ci.render("github", CELLS)[".github/workflows/rocm-wheels.yml"])
    rows = gitlab["wheels"]["parallel"]["matrix"]
    assert [row["FINGERPRINT"] for row in rows] == [cell.fingerprint for cell in CELLS]
    assert [row["fingerprint"] for row in github["jobs"]["wheel"]["strategy"]["matrix"]["include"]] == [
        cell.fingerprint for cell in CELLS
    ]
    assert len(gitlab["builder-image"]["parallel"]["matrix"]) == 1


def test_credentials_are_variables_of_the_protected_publish_job_alone() -> None:
    for system in ci.SYSTEMS:
        for text in ci.render(system, CELLS).values():
            code = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
            uses = [line for line in code.splitlines() if "PASSWORD" in line and "CI_REGISTRY" not in line]
            assert all("secrets." in line for line in uses)
    child = parsed(ci.render("gitlab", CELLS)[".gitlab/rocm-wheels.yml"])
    assert "CI_COMMIT_REF_PROTECTED" in child["publish"]["rules"][0]["if"]
    job = parsed(ci.render("github", CELLS)[".github/workflows/rocm-wheels.yml"])["jobs"]["publish"]
    assert job["environment"]
    assert "ref_protected" in job["if"]


def test_no_placeholder_is_left_and_the_ci_systems_own_stay() -> None:
    for system in ci.SYSTEMS:
        for text in ci.render(system, CELLS).values():
            assert "@@" not in text
    assert 'ARTIFACT_MIB: "77"' in ci.render("gitlab", CELLS, limit_mib=77)[".gitlab/rocm-wheels.yml"]
    assert "registry.example/team" in ci.render("github", CELLS, registry="registry.example/team").popitem()[1]
    assert "${{ matrix.python }}" in ci.render("github", CELLS)[".github/workflows/rocm-wheels.yml"]
    assert "$PYTHON" in ci.render("gitlab", CELLS)[".gitlab/rocm-wheels.yml"]


def test_a_pipeline_that_is_not_ours_is_not_overwritten(tmp_path: Path) -> None:
    files = ci.render("gitlab", CELLS)
    ci.write(files, tmp_path)
    ci.write(files, tmp_path)
    (tmp_path / ".gitlab-ci.yml").write_text("stages: []\n", "utf-8")
    with pytest.raises(UsageError, match="not ours"):
        ci.write(files, tmp_path)


def test_impossible_combinations_and_unknown_systems_are_refused() -> None:
    with pytest.raises(UsageError, match="jenkins"):
        ci.render("jenkins", CELLS)
    with pytest.raises(RocmWheelsError):
        ci.plan_cells(load(), archs=["gfx1201"])
