"""What the engine says when docker and podman are missing, forbidden, old or broken: stand-ins on PATH play them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocm_wheels import config
from rocm_wheels.build.engine import ContainerEngine, HostEngine, find_engine
from rocm_wheels.build.limits import Measure, needed
from rocm_wheels.build.owner import Owner
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import (
    EngineBroken,
    EnginePermission,
    EngineTooOld,
    HostToolMissing,
    PackagesMissing,
    RocmWheelsError,
    SettingError,
)

# Answers every question of the engine as a podman or docker that works and needs `--network host`.
WORKS = """
case "$*" in
  *"version --format"*) echo 5.4.2 ;;
  *"info --format"*) echo false ;;
  *"run --network host"*) exit 0 ;;
  "run "*) echo "Error: no network here" >&2; exit 126 ;;
esac
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH; the shell and what the probe packs are there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "ldd", "cat"):
        (folder / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("USER", "ada")
    return folder


def stand_in(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def settings(tmp_path: Path) -> Settings:
    return config.load({"cache_dir": str(tmp_path / "cache")})


def find(tmp_path: Path, name: str = "") -> object:
    return find_engine(name, console=Console(quiet=True), settings=settings(tmp_path))


def test_without_an_engine_a_user_gets_the_command_to_install_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(path, "apt-get", "exit 99")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "ubuntu", "ID_LIKE": "debian"})
    with pytest.raises(PackagesMissing) as caught:
        find(tmp_path)
    assert caught.value.remedy.startswith(
        "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends podman"
    )


def test_as_root_the_engine_is_installed_by_apt(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(path, "podman.sh", WORKS)
    stand_in(
        path, "apt-get", f'echo "$@" >> {tmp_path}/apt; [ "$1" = update ] || /bin/cp {path}/podman.sh {path}/podman'
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    found = find(tmp_path)
    assert isinstance(found, ContainerEngine)
    assert (tmp_path / "apt").read_text().splitlines()[0] == "update"
    assert "install -y --no-install-recommends podman" in (tmp_path / "apt").read_text()


def test_on_other_systems_nothing_is_installed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "fedora"})
    with pytest.raises(PackagesMissing, match="only Debian and Ubuntu"):
        find(tmp_path)


def test_apts_own_error_is_shown(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(path, "apt-get", "echo 'E: Unable to locate package podman' >&2; exit 100")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "debian"})
    with pytest.raises(PackagesMissing, match="exit code 100: E: Unable to locate package podman"):
        find(tmp_path)


def test_an_unknown_engine_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="podman"):
        find(tmp_path, "podmna")


def test_a_docker_socket_without_permission_says_which_group(path: Path, tmp_path: Path) -> None:
    stand_in(path, "docker", "echo 'permission denied while trying to connect to the Docker daemon socket' >&2; exit 1")
    with pytest.raises(EnginePermission) as caught:
        find(tmp_path, "docker")
    assert "usermod -aG docker ada" in caught.value.remedy


def test_a_rootless_podman_without_subordinate_ids_says_how_to_add_them(path: Path, tmp_path: Path) -> None:
    said = 'cannot set up namespace using "newuidmap": no subuid ranges found for user "ada"'
    script = f"echo '{said}' >&2; exit 125"
    stand_in(path, "podman", script)
    with pytest.raises(EnginePermission) as caught:
        find(tmp_path)
    assert "usermod --add-subuids" in caught.value.remedy


def test_a_stopped_docker_daemon_says_how_to_start_it(path: Path, tmp_path: Path) -> None:
    stand_in(path, "docker", "echo 'Cannot connect to the Docker daemon. Is the docker daemon running?' >&2; exit 1")
    with pytest.raises(EngineBroken) as caught:
        find(tmp_path, "docker")
    assert "systemctl start docker" in caught.value.remedy


@pytest.mark.parametrize(("name", "version"), [("podman", "3.4.4"), ("docker", "19.03.1"), ("docker", "nonsense")])
def test_an_old_engine_is_refused_with_the_version_needed(path: Path, tmp_path: Path, name: str, version: str) -> None:
    stand_in(path, name, f"echo {version}")
    with pytest.raises(EngineTooOld, match=version):
        find(tmp_path, name)


def test_an_engine_that_starts_nothing_is_refused_with_its_own_words(path: Path, tmp_path: Path) -> None:
    stand_in(path, "podman", WORKS.replace("exit 0", "echo 'Error: no cgroups' >&2; exit 126"))
    with pytest.raises(EngineBroken, match="no cgroups"):
        find(tmp_path)


def test_the_second_engine_is_taken_when_the_first_does_not_work(path: Path, tmp_path: Path) -> None:
    stand_in(path, "podman", "echo 3.0.1")
    stand_in(path, "docker", WORKS.replace("5.4.2", "27.1.0"))
    found = find(tmp_path)
    assert isinstance(found, ContainerEngine)
    assert found.describe() == "docker 27.1.0 (host-network)"


def test_the_probe_is_remembered(path: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    stand_in(path, "podman", f'echo "$@" >> {calls}\n{WORKS}')
    find(tmp_path)
    assert "run " in calls.read_text()
    calls.write_text("")
    found = find(tmp_path)
    assert isinstance(found, ContainerEngine)
    assert found.describe() == "podman 5.4.2 (host-network)"
    assert "run " not in calls.read_text()


def test_a_damaged_memory_of_the_probe_is_probed_again(path: Path, tmp_path: Path) -> None:
    stand_in(path, "podman", WORKS)
    find(tmp_path)
    (tmp_path / "cache/engine/podman.json").write_text('{"key": ')
    found = find(tmp_path)
    assert isinstance(found, ContainerEngine)
    assert found.describe() == "podman 5.4.2 (host-network)"


A, B, C = Measure("a"), Measure("b"), Measure("c")


@pytest.mark.parametrize(
    ("necessary", "kept"), [((), ()), ((A,), (A,)), ((A, C), (A, C)), ((B, C), (B, C)), ((A, B, C), (A, B, C))]
)
def test_only_measures_without_which_nothing_starts_are_kept(
    necessary: tuple[Measure, ...], kept: tuple[Measure, ...]
) -> None:
    def fails(given: Sequence[Measure]) -> str:
        return "" if set(necessary) <= set(given) else "no"

    assert needed((A, B, C), fails) == (kept, "")


def test_when_not_even_all_measures_help_the_error_is_given() -> None:
    assert needed((A,), lambda given: f"error with {len(given)}") == ((), "error with 1")


def test_an_owner_survives_writing_and_reading() -> None:
    owner = Owner.current()
    assert Owner.parse(str(owner)) == owner
    assert not owner.is_dead


def test_an_owner_whose_process_ended_is_dead_and_one_of_another_machine_unknown() -> None:
    child = subprocess.Popen(["true"])
    here = Owner.current()
    ended = Owner(here.boot, here.namespace, child.pid, 1)
    child.wait()
    assert ended.is_dead
    assert not Owner("another-boot", here.namespace, child.pid, 1).is_dead
    assert not Owner(here.boot, "another-namespace", child.pid, 1).is_dead


def test_a_reused_process_number_is_not_the_owner() -> None:
    here = Owner.current()
    assert Owner(here.boot, here.namespace, here.pid, here.started - 1).is_dead


@pytest.mark.parametrize("text", ["", "a/b/c", "a/b/c/d", "a/b/1/2/3"])
def test_a_label_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Owner.parse(text)


def test_a_host_without_the_python_says_so(path: Path) -> None:
    with pytest.raises(HostToolMissing, match=r"python3\.99"):
        HostEngine(Console(quiet=True)).run("host", ["/opt/python/3.99/bin/python"], on_line=lambda _: None)


def test_the_errors_of_this_room_have_codes_of_their_own() -> None:
    codes = [cls.exit_code for cls in RocmWheelsError.__subclasses__() if 40 <= cls.exit_code < 50]
    assert len(codes) == len(set(codes)) == 10
