"""Nothing is compiled twice: with real ccache, hipcc and redis, on minitorch (`nox -s bench -- build`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from rocm_wheels.build.setup import ensure_packages
from rocm_wheels.console import Console
from rocm_wheels.errors import PackagesMissing
from tests.bench.build import Run, measure

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    try:
        for purpose in ("engine", "tests"):
            ensure_packages(purpose, Console())
    except PackagesMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("cache")
    yield measure(folder, Console())
    shutil.rmtree(folder)


def test_an_empty_cache_is_filled_with_every_language(runs: dict[str, Run]) -> None:
    calls = runs["empty cache"].calls
    assert set(calls) == {"C", "C++", "HIP"}
    assert all(counted.hits == 0 and counted.misses and not counted.uncached for counted in calls.values())


def test_a_second_python_compiles_only_what_includes_its_headers(runs: dict[str, Run]) -> None:
    first, second = runs["empty cache"], runs["second Python"]
    assert (second.calls["C++"].rate, second.calls["HIP"].rate) == (1.0, 1.0)
    assert second.calls["C"].misses == 1  # module.c includes Python.h
    assert second.core_seconds <= first.core_seconds / 4
    assert second.sha256 != first.sha256


@pytest.mark.parametrize("name", ["another directory", "another machine"])
def test_a_warm_cache_gives_the_same_wheel_elsewhere(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    assert all(counted.rate == 1.0 for counted in run.calls.values())
    assert run.sha256 == runs["empty cache"].sha256
