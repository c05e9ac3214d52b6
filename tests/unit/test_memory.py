"""Memory limits of cgroups v1 and v2, nested, and what they leave."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from rocm_wheels.build import memory


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return tree(tmp_path / "proc", {"self/cgroup": "0::/user/job"})


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    return tree(tmp_path / "cgroup", {"cgroup.controllers": "memory"})


def test_the_tightest_limit_above_the_process_counts(proc: Path, cgroups: Path) -> None:
    tree(cgroups / "user/job", {"memory.max": "max", "memory.current": "5", "memory.stat": ""})
    tree(cgroups / "user", {"memory.max": "3000", "memory.current": "1000", "memory.stat": "inactive_file 200"})
    assert memory.available_memory(proc=proc, cgroups=cgroups) == 2200


def test_a_limit_of_version_1_counts(tmp_path: Path) -> None:
    proc = tree(tmp_path / "proc", {"self/cgroup": "5:cpu,memory:/job\n1:name=systemd:/"})
    groups = tree(
        tmp_path / "cgroup/memory/job",
        {"memory.limit_in_bytes": "900", "memory.usage_in_bytes": "400", "memory.stat": "total_inactive_file 100"},
    )
    assert memory.available_memory(proc=proc, cgroups=groups.parent.parent) == 600


def test_a_cgroup_that_is_full_leaves_nothing(proc: Path, cgroups: Path) -> None:
    tree(cgroups / "user/job", {"memory.max": "10", "memory.current": "20", "memory.stat": ""})
    assert memory.available_memory(proc=proc, cgroups=cgroups) == 0


def test_without_a_limit_the_machine_decides(proc: Path, cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("M", (), {"available": 77}))
    assert memory.available_memory(proc=proc, cgroups=cgroups) == 77


@pytest.mark.parametrize(("free", "jobs"), [(0, 1), (3.9e9, 1), (4.1e9, 2), (9e12, 3)])
def test_jobs_are_bound_by_memory_and_cores(free: float, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: int(free))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert memory.default_jobs(1_500_000_000) == jobs


def test_kills_for_memory_are_read_from_the_kernel(tmp_path: Path) -> None:
    tree(tmp_path, {"vmstat": "nr_free_pages 1\noom_kill 7\n", "old": "nr_free_pages 1"})
    assert memory.oom_kills(tmp_path / "vmstat") == 7
    assert memory.oom_kills(tmp_path / "old") == 0
