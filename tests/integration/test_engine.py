"""Containers by the engines of this machine, on an image made of its own `sh` and a few commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rocm_wheels import config
from rocm_wheels.build.engine import ContainerEngine, HostEngine, Mount, find_engine
from rocm_wheels.build.limits import HOST_NETWORK, Measure, write_host_rootfs
from rocm_wheels.build.owner import LABEL, Owner
from rocm_wheels.console import Console
from rocm_wheels.errors import ContainerStartFailed, DeviceMissing, ImageBuildFailed, PackagesMissing

pytestmark = pytest.mark.integration

IMAGE = "localhost/rocm-wheels/test-commands:1"
PARENT = """
import sys
from pathlib import Path
from rocm_wheels import config
from rocm_wheels.build.engine import find_engine
from rocm_wheels.console import Console
name, cache, image, dockerfile = sys.argv[1:]
show = lambda line: print(line, flush=True)
with find_engine(name, console=Console(), settings=config.load({"cache_dir": cache})) as engine:
    if dockerfile:
        engine.build(Path(dockerfile), "localhost/rocm-wheels/test-never:1", log=Path(cache, "log"), on_line=show)
    sys.exit(engine.run(image, ["sh", "-c", "echo running; sleep 300 & wait"], on_line=show))
"""


@pytest.fixture(scope="module")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A docker daemon of our own, with its data in a temporary directory."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("no dockerd here, or no right to start one: apt-get install docker.io, as root")
    folder = tmp_path_factory.mktemp("dockerd")
    limits = {"nofile": _limit("nofile", 4096), "nproc": _limit("nproc", 4096)}
    settings = {"bridge": "none", "iptables": False, "ip6tables": False, "default-ulimits": limits}
    (folder / "daemon.json").write_text(json.dumps(settings | {"exec-opts": ["native.cgroupdriver=cgroupfs"]}))
    address = f"unix://{folder}/docker.sock"
    command = ["dockerd", f"--config-file={folder}/daemon.json", f"--data-root={folder}/data", f"--host={address}"]
    command += [f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    with (folder / "log").open("w") as log, pytest.MonkeyPatch.context() as patch:
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
        patch.setenv("DOCKER_HOST", address)
        try:
            answers = _eventually(lambda: subprocess.run(["docker", "info"], capture_output=True).returncode == 0)
            if not answers:
                pytest.skip(f"dockerd does not start here: {(folder / 'log').read_text()[-300:]}")
            yield
        finally:
            daemon.terminate()
            daemon.wait(20)
            subprocess.run(["umount", folder / "exec" / "netns" / "default"], check=False, capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


def _limit(name: str, value: int) -> dict[str, object]:
    return {"Name": name, "Hard": value, "Soft": value}


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    if request.param == "docker":
        request.getfixturevalue("dockerd")
    settings = config.load({"cache_dir": str(tmp_path_factory.mktemp("cache"))})
    try:
        found = find_engine(request.param, console=Console(quiet=True), settings=settings)
    except PackagesMissing as error:
        pytest.skip(str(error))
    assert isinstance(found, ContainerEngine)
    tar = tmp_path_factory.mktemp("rootfs") / "root.tar"
    write_host_rootfs(tar, ("sh", "id", "sleep", "touch", "cat", "env"))
    with found:
        found.import_base(tar, IMAGE)
        yield found
        found.remove_image(IMAGE)


@pytest.fixture
def builder(engine: ContainerEngine) -> ContainerEngine:
    """The engine, if it can build images here."""
    if engine.name == "docker" and subprocess.run(["docker", "buildx", "version"], capture_output=True).returncode:
        pytest.skip("this docker has no buildx: apt-get install docker-buildx, where the release has it")
    return engine


def run(engine: ContainerEngine, script: str, **options: object) -> tuple[int, list[str]]:
    lines: list[str] = []
    code = engine.run(IMAGE, ["sh", "-c", script], on_line=lines.append, **options)  # type: ignore[arg-type]
    return code, lines


@pytest.mark.parametrize("code", [0, 1, 3, 125, 126, 127])
def test_the_exit_code_is_the_commands_own(engine: ContainerEngine, code: int) -> None:
    assert run(engine, f"exit {code}") == (code, [])


def test_a_command_killed_by_a_signal_gives_128_and_its_number(engine: ContainerEngine) -> None:
    assert run(engine, "kill -9 $$")[0] == 137


def test_a_command_that_does_not_exist_gives_127(engine: ContainerEngine) -> None:
    assert engine.run(IMAGE, ["no-such-command"], on_line=lambda _: None) == 127


def test_output_arrives_line_by_line_while_the_command_runs(engine: ContainerEngine, tmp_path: Path) -> None:
    """The command goes on only when its first line has been seen."""
    wait = (
        "i=0; until [ -e /work/seen ] || [ $i = 600 ]; do sleep 0.1; i=$((i + 1)); done; [ $i != 600 ] && echo two >&2"
    )
    lines: list[str] = []

    def see(line: str) -> None:
        lines.append(line)
        (tmp_path / "seen").touch()

    engine.run(IMAGE, ["sh", "-c", f"echo one; {wait}; echo three"], mounts=(Mount(tmp_path, "/work"),), on_line=see)
    assert lines == ["one", "two", "three"]


def test_environment_reaches_the_command_and_not_argv(engine: ContainerEngine) -> None:
    argv: list[str] = []

    def look(line: str) -> None:
        for child in psutil.Process().children(recursive=True):
            argv.extend(child.cmdline())
        assert line == "hidden-word"

    code = engine.run(
        IMAGE, ["sh", "-c", 'echo "$TOKEN"; sleep 0.5'], env={"TOKEN": "hidden-word", "PATH": "/bin"}, on_line=look
    )
    assert code == 0
    assert argv
    assert not any("hidden-word" in word for word in argv)


@pytest.mark.parametrize("measures", [(), (Measure("host-network", command=HOST_NETWORK),)])
def test_a_command_can_reach_servers_of_this_machine(
    engine: ContainerEngine, measures: tuple[Measure, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = tuple(measure for measure in engine._measures if measure.command != HOST_NETWORK)
    monkeypatch.setattr(engine, "_measures", others + measures)
    here = [f"/sys/class/net/{path.name}" for path in sorted(Path("/sys/class/net").iterdir())]
    assert run(engine, "echo /sys/class/net/*", host_network=True) == (0, [" ".join(here)])


def test_path_is_set_inside_without_changing_the_clients_own(engine: ContainerEngine) -> None:
    assert run(engine, "echo $PATH", env={"PATH": "/bin:/nowhere"}) == (0, ["/bin:/nowhere"])


def test_a_read_only_mount_cannot_be_written_and_a_plain_one_can(engine: ContainerEngine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text\n")
    fixed = Mount(tmp_path, "/fixed", read_only=True)
    code, lines = run(
        engine, "cat /fixed/file; touch /free/made; touch /fixed/no", mounts=[fixed, Mount(tmp_path, "/free")]
    )
    assert code != 0
    assert lines[0] == "text"
    assert (tmp_path / "made").exists()
    assert not (tmp_path / "no").exists()


def test_files_belong_to_the_caller(engine: ContainerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = 12345 if os.getuid() == 0 else os.getuid()
    if os.getuid() == 0:
        os.chown(tmp_path, user, user)
        monkeypatch.setattr(os, "getuid", lambda: user)
        monkeypatch.setattr(os, "getgid", lambda: user)
    assert run(engine, "touch made", mounts=[Mount(tmp_path, "/work")], workdir="/work") == (0, [])
    assert (tmp_path / "made").stat().st_uid == user


def test_a_missing_device_is_an_error_of_its_own(engine: ContainerEngine) -> None:
    with pytest.raises(DeviceMissing, match="/dev/no-such-gpu"):
        run(engine, "true", devices=["/dev/no-such-gpu"])


def test_a_stand_in_device_is_passed(engine: ContainerEngine) -> None:
    assert run(engine, "test -c /dev/kfd", devices=["/dev/null:/dev/kfd"])[0] == 0


def test_a_missing_mount_source_is_refused(engine: ContainerEngine, tmp_path: Path) -> None:
    with pytest.raises(ContainerStartFailed, match="does not exist"):
        run(engine, "true", mounts=[Mount(tmp_path / "none", "/none")])


def test_a_missing_image_is_told_from_a_failing_command(engine: ContainerEngine) -> None:
    with pytest.raises(ContainerStartFailed, match="could not start"):
        engine.run("localhost/rocm-wheels/none:1", ["true"], on_line=lambda _: None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_container_ends_with_its_parent(engine: ContainerEngine, tmp_path: Path, number: signal.Signals) -> None:
    parent = _parent(engine.name, tmp_path)
    assert _containers(engine, parent.pid)
    parent.send_signal(number)
    assert parent.wait(20) == {signal.SIGTERM: 143, signal.SIGINT: -signal.SIGINT, signal.SIGKILL: -9}[number]
    assert _eventually(lambda: not _containers(engine, parent.pid))


def test_a_container_ends_when_parent_and_client_are_killed(engine: ContainerEngine, tmp_path: Path) -> None:
    parent = _parent(engine.name, tmp_path)
    victims = [psutil.Process(parent.pid), *psutil.Process(parent.pid).children(recursive=True)]
    for victim in victims:
        victim.kill()
    parent.wait(20)
    assert _eventually(lambda: not _running(engine, parent.pid))


def test_containers_of_dead_owners_go_at_the_next_start_and_others_stay(
    engine: ContainerEngine, tmp_path: Path
) -> None:
    gone = Owner(Owner.current().boot, Owner.current().namespace, 2**22 - 1, 1)
    for name, owner in (("dead", gone), ("alive", Owner.current())):
        words = ["--detach", "--name", f"test-{name}", "--label", f"{LABEL}={owner}", IMAGE, "sleep", "100"]
        subprocess.run(engine._command("run", *words), check=True, capture_output=True)
    try:
        find_engine(engine.name, console=Console(quiet=True), settings=config.load({"cache_dir": str(tmp_path)}))
        names = subprocess.run([engine.name, "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True)
        assert "test-alive" in names.stdout.split()
        assert "test-dead" not in names.stdout.split()
    finally:
        subprocess.run([engine.name, "rm", "--force", "test-dead", "test-alive"], capture_output=True)


def test_build_gives_secrets_to_a_step_and_keeps_them_from_the_image(builder: ContainerEngine, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden-word")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        f"FROM {IMAGE}\nRUN --mount=type=secret,id=word cat /run/secrets/word > /dev/null && touch /made\n"
    )
    tag = "localhost/rocm-wheels/test-built:1"
    lines: list[str] = []
    builder.build(dockerfile, tag, secrets={"word": tmp_path / "secret"}, log=tmp_path / "log", on_line=lines.append)
    try:
        assert builder.image_exists(tag)
        assert builder.images("localhost/rocm-wheels/test-built") == [tag]
        assert builder.run(tag, ["sh", "-c", "test -e /made && ! cat /run/secrets/word"], on_line=lines.append) == 0
        assert "hidden-word" not in "\n".join(lines)
    finally:
        builder.remove_image(tag)
    assert not builder.image_exists(tag)


def test_a_failing_build_step_shows_its_error(builder: ContainerEngine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo fine; echo 'E: no such package' >&2; exit 7\n")
    with pytest.raises(ImageBuildFailed, match="E: no such package") as caught:
        builder.build(
            tmp_path / "Dockerfile", "localhost/rocm-wheels/test-bad:1", log=tmp_path / "log", on_line=lambda _: None
        )
    assert str(tmp_path / "log") in caught.value.remedy


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_build_step_ends_with_its_parent(builder: ContainerEngine, tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo running; sleep 300\n")
    parent = _parent(builder.name, tmp_path, tmp_path / "Dockerfile")
    tree = psutil.Process(parent.pid).children(recursive=True)
    parent.send_signal(number)
    parent.wait(20)
    assert _eventually(lambda: not any(_alive(process) for process in tree))


def test_the_storage_is_a_directory(engine: ContainerEngine) -> None:
    assert engine.storage.is_dir()


# --- the host as engine -----------------------------------------------------------------------------------------------


def test_on_the_host_container_paths_become_its_own(tmp_path: Path) -> None:
    lines: list[str] = []
    engine = HostEngine(Console(quiet=True))
    script = "pwd; echo $WHERE; exec /opt/tools/bin/python -c 'import sys; print(sys.executable); sys.exit(4)'"
    code = engine.run(
        "host",
        ["sh", "-c", script],
        mounts=[Mount(tmp_path, "/build")],
        env={"WHERE": "/build/a:/builder"},
        workdir="/build",
        on_line=lines.append,
    )
    assert code == 4
    assert lines == [str(tmp_path), f"{tmp_path}/a:/builder", sys.executable]


def test_on_the_host_the_command_ends_with_its_killed_parent(tmp_path: Path) -> None:
    parent = _parent("none", tmp_path)
    commands = psutil.Process(parent.pid).children(recursive=True)
    assert commands
    parent.kill()
    parent.wait(60)
    assert _eventually(lambda: not any(_alive(command) for command in commands))


# --- helpers ----------------------------------------------------------------------------------------------------------


def _parent(name: str, tmp_path: Path, dockerfile: Path | str = "") -> subprocess.Popen[str]:
    """A process that runs `sleep 300` by the engine, or in a step of ``dockerfile``, returned when that is running."""
    command = [sys.executable, "-c", PARENT, name, str(tmp_path), IMAGE, str(dockerfile)]
    parent = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job would inherit "ignored"
    )
    assert parent.stdout is not None
    assert any(line == "running\n" for line in parent.stdout)
    return parent


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _containers(engine: ContainerEngine, pid: int, *options: str) -> list[str]:
    command = [engine.name, "ps", "--quiet", "--filter", f"name=rocm-wheels-{pid}-", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _running(engine: ContainerEngine, pid: int) -> list[str]:
    return _containers(engine, pid, "--filter", "status=running")


def _eventually(condition: Callable[[], bool]) -> bool:
    """Whether ``condition`` comes true before even a busy machine would have given up."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return condition()
