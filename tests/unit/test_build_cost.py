"""What ninja's log says, what a build costs, and the report on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rocm_wheels.build import measured
from rocm_wheels.build.compiler_cache import Calls
from rocm_wheels.build.cost import estimate, known_cost, learn
from rocm_wheels.build.ninja_log import Counted, Remaining, Step, read_log, totals
from rocm_wheels.build.report import Phase, render
from rocm_wheels.console import duration
from rocm_wheels.release import Cost, load_matrix

COST = Cost(
    cxx_steps=100,
    cxx_seconds=10.0,
    python_steps=20,
    hip_steps=10,
    hip_seconds=30.0,
    job_memory=1.5,
    disk=6.0,
    origin="test",
)
LOG = """# ninja log v7
0\t8000\t1\tcore/a.cpp.o\taa
8000\t9000\t1\tgen/one.h\tcc
8000\t9000\t1\tgen/two.h\tcc
0\t20000\t1\thip/gen_a.hip.o\tbb
20000\t21000\t1\tlib/liba.so\tdd
0\t5000\t1\tcore/b.cpp.o\tee
5000\t60"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / ".ninja_log").write_text(LOG)
    return tmp_path / ".ninja_log"


def test_a_second_run_is_laid_after_the_first_and_a_torn_line_is_left_out(log: Path) -> None:
    steps = {step.output: step for step in read_log(log)}
    assert set(steps) == {"core/a.cpp.o", "hip/gen_a.hip.o", "gen/one.h", "lib/liba.so", "core/b.cpp.o"}
    assert (steps["core/b.cpp.o"].start, steps["core/b.cpp.o"].end) == (21.0, 26.0)


def test_steps_are_counted_by_kind_and_one_with_many_outputs_once(log: Path) -> None:
    assert totals(read_log(log)) == {"C++": (2, 13.0), "HIP": (1, 20.0), "link": (1, 1.0), "other": (1, 1.0)}


def test_no_log_is_no_step(tmp_path: Path) -> None:
    assert read_log(tmp_path / "none") == []


def test_the_share_of_work_done_follows_seconds_not_steps() -> None:
    pending = ["[1/3] Building CXX object a.cpp.o", "[2/3] Building HIPCC object a.hip.o", "[3/3] Linking CXX x.so"]
    work = Remaining(["ninja: Entering directory `build'", *pending], {"C++": 10, "HIP": 80, "link": 10})
    assert (work.steps, work.done) == (3, 0.0)
    assert work.finished(pending[0])
    assert work.done == pytest.approx(0.1)
    assert not work.finished("a warning")
    work.finished(pending[1])
    assert work.done == pytest.approx(0.9)


def test_without_figures_the_count_tells() -> None:
    work = Counted()
    assert not work.finished("ninja: Entering directory `build'")
    assert work.finished("[3/12] Building CXX object a.cpp.o")
    assert work.done == 0.25


def test_nothing_to_do_is_done() -> None:
    assert Remaining(["ninja: no work to do."], {}).done == 1.0


def test_another_target_costs_its_kernels_and_another_python_its_bindings() -> None:
    one, two = (estimate(COST, archs=archs, jobs=2) for archs in (1, 2))
    assert two.core_seconds - one.core_seconds == one.one_more_arch == 300
    assert one.one_more_python == 200
    assert one.seconds == one.core_seconds / 2


def test_the_figures_of_this_machine_go_over_the_row(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    assert known_cost(COST, file) == COST
    file.write_text('{"cxx_seconds": 5.0, "hip_seconds": 20.0, "job_memory": 2.0}')
    known = known_cost(COST, file)
    assert known is not None
    assert (known.cxx_seconds, known.hip_seconds, known.job_memory) == (5.0, 20.0, 2.0)
    file.write_text("{")
    assert known_cost(COST, file) == COST


@pytest.mark.parametrize(("hits", "learnt"), [(0, True), (9, False)])
def test_a_build_from_the_cache_teaches_nothing(tmp_path: Path, log: Path, hits: int, learnt: bool) -> None:
    calls = {kind: Calls(hits=hits, misses=1) for kind in ("C++", "HIP")}
    phase = Phase(stage="compile", seconds=1, core_seconds=1, largest_process=1_400_000_000, compiler_cache=calls)
    learn(read_log(log), phase, archs=2, measured=tmp_path / "new" / "m.json")
    assert (tmp_path / "new" / "m.json").is_file() == learnt
    if learnt:
        figures = json.loads((tmp_path / "new" / "m.json").read_text())
        assert figures == {"cxx_seconds": 6.5, "hip_seconds": 10.0, "job_memory": 1.4}


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (300, "5 min"), (7500, "2 h 05 min")])
def test_seconds_are_told_in_the_unit_that_a_person_would_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_command_is_measured_with_its_children(tmp_path: Path) -> None:
    child = "b = b'x' * 80_000_000; sum(range(3_000_000))"
    busy = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    usage = tmp_path / "usage.jsonl"
    for code in (0, 3):
        script = f"{busy}; sys.exit({code})"
        argv = [sys.executable, measured.__file__, str(usage), sys.executable, "-c", script]
        assert subprocess.run(argv, check=False).returncode == code
    phase = Phase.read("compile", usage, 1.0, {"HIP": Calls(hits=1)})
    assert phase.largest_process > 80_000_000
    assert phase.core_seconds > 0
    assert Phase.from_json(phase.to_json("f")) == phase


def test_a_signal_is_told_as_a_shell_does(tmp_path: Path) -> None:
    argv = [sys.executable, measured.__file__, str(tmp_path / "u"), "sh", "-c", "kill -9 $$"]
    assert subprocess.run(argv, check=False).returncode == 137


def test_the_report_shows_phases_steps_and_no_foreign_address(log: Path) -> None:
    phase = Phase(stage="compile", seconds=26, core_seconds=36, largest_process=10**9, compiler_cache={})
    page = render("pytorch <2.6.0>", [phase], [*read_log(log), Step(0, 1, "<odd>.so")])
    assert page.count("<rect") == 6
    assert "pytorch &lt;2.6.0&gt;" in page
    assert "&lt;odd&gt;.so" in page
    assert "1.00 GB" in page
    assert "://" not in page


def test_every_build_of_pytorch_that_ran_knows_its_cost() -> None:
    builds = [b for r in load_matrix().releases if r.framework == "pytorch" for b in r.builds]
    ran = [build for build in builds if build.origin != "never run"]
    assert ran
    assert all(build.cost and build.cost.origin for build in ran)
