"""ccache's log per language, the shared cache's address, and the compilers that a tree belongs to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rocm_wheels.build.compiler_cache import Calls, is_on_this_machine, read_calls, remote_storage
from rocm_wheels.build.toolchain import record_toolchain
from rocm_wheels.config import CACHE_CREDENTIALS, PROJECT_ROOT
from rocm_wheels.errors import SettingError, ToolchainChanged

LAUNCH = PROJECT_ROOT / "rocm_wheels" / "build" / "launch"
LOG = """# /build/src/a.cpp
direct_cache_hit
local_storage_hit
# /build/src/b.cpp
cache_miss
preprocessed_cache_miss
# /build/src/k.hip
unsupported_compiler_option
# /build/src/k.hip
preprocessed_cache_hit
direct_cache_miss
# /build/src/m.hip
multiple_source_files
"""


def test_calls_are_counted_by_language_and_those_that_compile_nothing_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    calls = read_calls(tmp_path / "log")
    assert calls == {"C++": Calls(1, 1, 0), "HIP": Calls(1, 0, 1)}
    assert str(calls["C++"]) == "1 of 2 compiles hit (50%)"
    assert str(calls["HIP"]) == "1 of 2 compiles hit (50%), 1 cannot be kept"


def test_a_stage_without_ccache_has_no_calls(tmp_path: Path) -> None:
    assert read_calls(tmp_path / "none") == {}


def test_the_shared_cache_gets_its_password_from_the_environment_only() -> None:
    environ = dict(zip(CACHE_CREDENTIALS, ("team", "a/b@c"), strict=True))
    assert remote_storage("redis://cache.example:6379", environ) == "redis://team:a%2Fb%40c@cache.example:6379"
    assert remote_storage("http://cache.example/ccache", {}) == "http://cache.example/ccache"
    assert remote_storage("", environ) == ""


@pytest.mark.parametrize(
    "address", ["https://cache.example", "redis:", "cache.example:6379", "redis://u:p@cache.example"]
)
def test_an_address_that_ccache_cannot_use_is_refused(address: str) -> None:
    with pytest.raises(SettingError) as caught:
        remote_storage(address, {})
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("redis://127.0.0.1:6379", True),
        ("http://localhost/c", True),
        ("http://[::1]:80/", True),
        ("redis://cache.example", False),
        ("redis://10.0.0.1", False),
        ("", False),
    ],
)
def test_a_cache_on_the_loopback_is_known(address: str, here: bool) -> None:
    assert is_on_this_machine(address) == here


def listing(*lines: str) -> Callable[[Sequence[str], Callable[[str], None]], None]:
    def run(argv: Sequence[str], on_line: Callable[[str], None]) -> None:
        for line in lines:
            on_line(line)

    return run


def test_a_tree_refuses_other_compilers_but_not_other_packages(tmp_path: Path) -> None:
    file = tmp_path / "toolchain.tsv"
    record_toolchain(file, listing("hipcc\t5.7\tamd64", "tzdata\t1\tall"))
    assert file.read_text() == "hipcc\t5.7\tamd64\n"
    record_toolchain(file, listing("hipcc\t5.7\tamd64", "tzdata\t2\tall"))
    with pytest.raises(ToolchainChanged, match="hipcc 6.4") as caught:
        record_toolchain(file, listing("hipcc\t6.4\tamd64", "tzdata\t2\tall"))
    assert "--fresh" in caught.value.remedy


def test_a_host_is_known_by_what_its_compilers_say(tmp_path: Path) -> None:
    file = tmp_path / "toolchain.tsv"
    record_toolchain(file, listing("HIP version: 5.7", "cc (Debian) 12.2"))
    with pytest.raises(ToolchainChanged):
        record_toolchain(file, listing("HIP version: 5.7", "cc (Debian) 14.2"))


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def launched(*folders: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = ":".join([*map(str, folders), "/usr/bin", "/bin"])
    return subprocess.run(
        [LAUNCH / "hipcc", "-c", "a b.hip"],
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_launcher_calls_the_next_hipcc_through_ccache_and_never_itself(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "ccache", 'printf "%s\\n" "$@"')
    hipcc = program(tmp_path / "rocm" / "hipcc", "exit 9")
    (tmp_path / "linked").symlink_to(LAUNCH)
    done = launched(LAUNCH, tmp_path / "linked", tmp_path / "bin", hipcc.parent)
    assert done.stdout.splitlines() == [str(hipcc), "-c", "a b.hip"]


def test_the_launcher_finds_hipcc_below_rocm_path_and_says_when_there_is_none(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "ccache", 'echo "$1"')
    none = launched(LAUNCH, tmp_path / "bin", ROCM_PATH=str(tmp_path / "rocm"))
    assert (none.returncode, "neither on PATH nor in" in none.stderr) == (127, True)
    hipcc = program(tmp_path / "rocm" / "bin" / "hipcc", "exit 9")
    assert launched(tmp_path / "bin", ROCM_PATH=str(tmp_path / "rocm")).stdout.strip() == str(hipcc)
