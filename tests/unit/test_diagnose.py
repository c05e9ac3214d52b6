from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import ANY

import pytest

from rocm_wheels.build.stages import Builder
from rocm_wheels.diagnose import diagnose_log, diagnose_text, find_logs, load_catalogue
from rocm_wheels.diagnose.catalogue import STAGES, read_faults
from rocm_wheels.diagnose.engine import clean
from rocm_wheels.errors import CatalogueError, LogUnreadable, StageFailed
from tests.provoke_logs import LOGS, Recipe, recipes

CATALOGUE = {fault.id: fault for fault in load_catalogue()}


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.name)
def test_a_log_is_diagnosed_by_its_first_real_error(recipe: Recipe) -> None:
    path = LOGS / f"{recipe.name}.log"
    found = diagnose_log(path)
    assert found.known == bool(recipe.fault)
    assert [f.fault.id for f in found.findings][:1] == [recipe.fault][: bool(recipe.fault)]
    line = found.line or found.findings[0].line  # what stops nothing is no error
    assert recipe.first in path.read_text("utf-8").splitlines()[line - 1]


def test_at_least_twenty_logs_were_provoked_and_ten_are_unknown() -> None:
    every = recipes()
    assert sum(bool(r.script and r.fault) for r in every) >= 30
    assert sum(not r.fault for r in every) >= 10
    assert {path.stem for path in LOGS.glob("*.log")} == {r.name for r in every}


def test_fault_ids_are_unique_and_every_fault_has_a_thread() -> None:
    assert len(CATALOGUE) == len(load_catalogue())
    assert {fault.stage for fault in CATALOGUE.values()} == set(STAGES)
    for fault in CATALOGUE.values():
        assert fault.links, fault.id
        assert all(link.startswith("https://github.com/") for link in fault.links), fault.id


@pytest.mark.parametrize(
    "text", ["", "all went well\n[2/2] Linking CXX executable torch\n", "100% tests passed, 0 errors\n"]
)
def test_a_log_without_an_error_has_none(text: str) -> None:
    found = diagnose_text(text)
    assert not found.known
    assert found.line == 0


def test_progress_flags_and_probes_are_no_errors() -> None:
    noise = """
-- Performing Test HAVE_ERROR_LIMIT - Failed
-- Could NOT find MKL (missing: MKL_LIBRARIES)
[12/90] Building CXX object error_report.cpp.o
g++ -Werror=format -c error.cpp -o error.o
a.cpp:1: warning: unused variable 'error'
copying torch/errors.py -> build/lib/torch
kernel.hip:9:3: error: expected expression
"""
    assert diagnose_text(noise).line == 8


def test_the_prefixes_of_ci_systems_and_colours_go() -> None:
    log = "2025-01-01T00:00:00.0000000Z \x1b[31mone\x1b[0m\r\n#12 3.456 two\n 10%\r 90%\rthree\nbuilder-1  | four\n"
    assert clean(log) == ["one", "two", "three", "four", ""]


def test_a_message_that_was_wrapped_over_lines_is_recognised() -> None:
    wrapped = 'Could not find a package configuration file provided\n  by "rocblas" with any of'
    log = f"CMake Error at x:1 (find_package):\n  {wrapped}"
    (finding,) = diagnose_text(log).findings
    assert finding.fault.id == "rocm-not-found"
    assert "rocblas" in finding.cause


def test_an_earlier_error_that_nobody_knows_is_said_beside_the_known_one() -> None:
    log = "a.hip:1:1: error: odd\n" + "[1/9] Building\n" * 20 + "ld.lld: error: undefined symbol: hipMalloc\n"
    found = diagnose_text(log)
    assert found.findings[0].fault.id == "hip-not-linked"
    assert found.earlier_error
    assert found.line == 1


def test_a_fault_that_stops_nothing_does_not_explain_another_failure() -> None:
    log = "-- Could NOT find NumPy (missing: NumPy_INCLUDE_DIR)\n" + "-- ok\n" * 20 + "x.cpp:1:1: error: odd\n"
    found = diagnose_text(log)
    assert not found.known
    assert [f.fault.id for f in found.findings] == ["numpy-missing"]
    assert diagnose_text(log.replace("error: odd", "fine")).known


def test_a_warning_of_cmake_is_no_failure_but_the_same_words_of_an_error_are() -> None:
    words = '  Could not find a package configuration file provided by "miopen" with\n  any of these names\n\n'
    warning = f"CMake Warning at LoadHIP.cmake:33 (find_package):\n{words}-- not found: no FFT\n"
    (finding,) = diagnose_text(warning).findings
    assert not finding.stops
    found = diagnose_text(f"{warning}-- ok\nCMake Error at x:1 (find_package):\n{words}")
    assert found.findings[0].stops
    assert found.line == 7
    assert not diagnose_text(f"{warning}x.cpp:1:1: error: odd\n").known


def test_a_failed_stage_says_its_cause_and_what_mends_it(tmp_path: Path) -> None:
    builder = Builder(plan=cast(Any, SimpleNamespace(tree=tmp_path)), engine=ANY, settings=ANY, console=ANY)
    (tmp_path / "logs").mkdir()
    builder.log("compile").write_text(
        "$ cmake --build build\nk.hip:1:10: fatal error: 'cuda_runtime.h' file not found\n", "utf-8"
    )
    with pytest.raises(StageFailed) as failed:
        builder._fail("compile", ["cmake", "--build", "build"], 1, killed=0)
    assert "cuda_runtime.h is CUDA's" in failed.value.message
    assert "run the hipify step first" in failed.value.remedy
    assert "compile.log" in failed.value.remedy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("title = 'x'", "missing"),
        ("colour = 'red'", "unknown"),
        ("patterns = ['(']", "no regular expression"),
        ("cause = 'because {name}'", "no group"),
        ("title = ", "cannot be read"),
    ],
)
def test_a_malformed_entry_is_refused(tmp_path: Path, change: str, message: str) -> None:
    entry = {"id": "'x'", "title": "'x'", "patterns": "['x']", "cause": "'x'", "remedy": "'x'", "links": "['x']"}
    key, _, value = change.partition(" = ")
    entry[key] = value
    if message == "missing":
        del entry[key]
    path = tmp_path / "run.toml"
    path.write_text("[[fault]]\n" + "".join(f"{k} = {v}\n" for k, v in entry.items()), "utf-8")
    with pytest.raises(CatalogueError, match=message):
        read_faults(path)


def test_logs_are_found_by_name_directory_and_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("a.log", "b.log", "c.txt"):
        (folder / name).write_text("x", "utf-8")
    assert [p.name for p in find_logs(str(folder))] == ["a.log", "b.log"]
    assert [p.name for p in find_logs(str(folder / "*.txt"))] == ["c.txt"]
    assert len(find_logs(str(tmp_path / "*" / "*.log"))) == 2
    with pytest.raises(LogUnreadable):
        find_logs(str(tmp_path / "none.log"))
