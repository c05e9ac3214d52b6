from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocm_wheels import config
from rocm_wheels.errors import SettingError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(config.PREFIX):
            monkeypatch.delenv(name)


def project(path: Path, text: str) -> Path:
    (path / "pyproject.toml").write_text(f"[tool.rocm-wheels]\n{text}\n")
    return path


def origin(name: str, root: Path, **given: object) -> tuple[object, str]:
    (found,) = (s for s in config.explain(given, root=root) if s.name == name)
    return found.value, found.origin


def test_each_layer_overrides_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin("jobs", tmp_path) == (0, "default")
    root = project(tmp_path, "jobs = 2")
    assert origin("jobs", root) == (2, "pyproject.toml")
    monkeypatch.setenv("ROCM_WHEELS_JOBS", "3")
    assert origin("jobs", root) == (3, "environment")
    assert origin("jobs", root, jobs=4) == (4, "command line")
    assert origin("jobs", root, jobs=None) == (3, "environment")


def test_dashes_in_pyproject_stand_for_underscores(tmp_path: Path) -> None:
    assert origin("cache_dir", project(tmp_path, 'cache-dir = "/c"'))[0] == "/c"


def test_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="jobs"):
        config.load(root=project(tmp_path, "jbs = 2"))


@pytest.mark.parametrize("value", ["x", "-1", "1.5"])
def test_number_of_the_wrong_form_is_refused(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCM_WHEELS_JOBS", value)
    with pytest.raises(SettingError, match="environment"):
        config.load(root=tmp_path)


def test_broken_pyproject_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[")
    with pytest.raises(SettingError, match="not valid TOML"):
        config.load(root=tmp_path)
