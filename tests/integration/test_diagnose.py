"""Faults provoked anew in the builder image: what its tools print today is still diagnosed right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocm_wheels.build.engine import find_engine
from rocm_wheels.build.image import ensure_image
from rocm_wheels.build.runner import Engine
from rocm_wheels.config import load
from rocm_wheels.console import Console
from rocm_wheels.diagnose import diagnose_text
from rocm_wheels.release import load_matrix
from tests.provoke_logs import provoke, recipes

pytestmark = pytest.mark.integration

# A second or two each, without wheels from an index; one or more of every stage.
CHOSEN = {
    "submodule-empty",
    "patch-twice",
    "disk-full-compile",
    "miopen-not-installed",
    "arch-native",
    "rocm-path-wrong",
    "link-argument-list",
    "cuda-header",
    "shared-memory",
    "link-without-hip",
    "auditwheel-library-away",
    "executable-stack",
    "hip-symbol-version",
    "unknown-cmake-message",
}


@contextmanager
def engine() -> Iterator[tuple[Engine, str]]:
    settings, console = load(), Console()
    with find_engine(settings.engine, console=console, settings=settings) as found:
        image = load_matrix().image("debian-trixie")
        yield found, ensure_image(image, engine=found, settings=settings, console=console).tag


def test_faults_provoked_in_the_image_are_diagnosed(tmp_path: Path) -> None:
    chosen = [recipe for recipe in recipes() if recipe.name in CHOSEN]
    assert len(chosen) == len(CHOSEN)
    (tmp_path / "wheels").mkdir()
    wrong = {}
    with engine() as (found, image):
        for recipe in chosen:
            log = provoke(recipe, found, image, tmp_path / "wheels")
            findings = diagnose_text(log).findings
            if [f.fault.id for f in findings][:1] != [recipe.fault][: bool(recipe.fault)]:
                wrong[recipe.name] = ([f.fault.id for f in findings], log[-500:])
    assert not wrong
