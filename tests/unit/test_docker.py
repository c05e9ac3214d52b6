from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.config import PROJECT_ROOT


def test_the_image_has_every_dependency_of_the_project_at_an_allowed_version() -> None:
    """Tasks run inside the image by its own tools: a dependency that is missing there fails after the compile."""
    text = (PROJECT_ROOT / "docker" / "tools-requirements.txt").read_text("utf-8")
    pinned = {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s\\;]+)", text, re.M)}
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for requirement in map(Requirement, project["dependencies"]):
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier
