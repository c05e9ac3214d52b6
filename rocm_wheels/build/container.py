"""docker and podman by their command lines."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.build.limits import HOST_NETWORK, Measure, load_measures, write_host_rootfs
from rocm_wheels.build.owner import LABEL, Owner
from rocm_wheels.build.process import STARTED, SUPERVISOR, Streamed, reaped
from rocm_wheels.build.runner import Command, Engine, Mount, after_start
from rocm_wheels.console import Console
from rocm_wheels.diagnose import first_error
from rocm_wheels.errors import (
    ContainerStartFailed,
    EngineBroken,
    EnginePermission,
    EngineTooOld,
    ImageBuildFailed,
    RocmWheelsError,
)

# Oldest version with what we use: `RUN --mount=type=secret` and `build --secret` by the default builder.
ENGINES = {"podman": (4, 0), "docker": (20, 10)}

# Of these the client itself must keep its own values, so they are given to the container by value, in argv.
_CLIENT_ENV = re.compile(r"PATH|HOME|TMPDIR|LANG|LC_.*|LD_.*|XDG_.*|DOCKER_.*|CONTAINER.*|BUILDAH_.*|GO.*")
_START_FAILED = (125, 126, 127)
_QUERY_SECONDS = 120
_HAS_NETWORK = "for i in /sys/class/net/*; do [ ${i##*/} = lo ] || exit 0; done; exit 1"


# A mount namespace inside the container; AppArmor's default profile would forbid its mounts.
_MAY_MOUNT = ("--cap-add", "SYS_ADMIN", "--security-opt", "apparmor=unconfined")


class ContainerEngine(Engine):
    """docker or podman by its command line."""

    def __init__(self, name: str, *, console: Console, cache: Path) -> None:
        self.name = name
        self._console = console
        self._names = itertools.count(1)
        self._measures: tuple[Measure, ...] = ()
        self.version = self._checked_version()
        self.rootless = self._is_rootless()
        self._measures = load_measures(name, self.version, cache, self._probe)
        self._remove_leftovers()

    def describe(self) -> str:
        """Name, version, and what had to be told to it on this machine."""
        extra = ", ".join(["rootless"] * self.rootless + [measure.name for measure in self._measures])
        return f"{self.name} {self.version}" + (f" ({extra})" if extra else "")

    # --- commands in containers ---------------------------------------------------------------------------------------

    def _run(self, command: Command, on_line: Callable[[str], None]) -> int:
        name = f"rocm-wheels-{os.getpid()}-{next(self._names)}"
        options = [
            *("--rm", "--pull=never", "--interactive", "--name", name, "--label", f"{LABEL}={Owner.current()}"),
            *("--workdir", command.workdir, *self._user_options(), *_mount_options(command.mounts)),
            *(f"--device={device}" for device in command.devices),
            *(HOST_NETWORK if command.host_network and not self._always_on_host_network else ()),
            *(_MAY_MOUNT if command.may_mount else ()),
        ]
        env = {"HOME": "/tmp", "USER": "builder", "LOGNAME": "builder"} | dict(command.env)
        for key, value in sorted(env.items()):
            options += ["--env", f"{key}={value}" if _CLIENT_ENV.fullmatch(key) else key]
        client_env = os.environ | {key: value for key, value in env.items() if not _CLIENT_ENV.fullmatch(key)}
        client = self._command("run", *options, command.image, "/bin/sh", "-c", SUPERVISOR, "sh", *command.argv)
        head: list[str] = []
        process = Streamed(client, client_env)
        try:
            code = process.stream(after_start(head, on_line))
        except BaseException:
            process.close(patience=8)
            self._remove(name)
            raise
        process.close(patience=8)
        if STARTED not in head and code:
            raise self._start_failure(command.image, code, head)
        return code

    @property
    def _always_on_host_network(self) -> bool:
        return any(measure.command == HOST_NETWORK for measure in self._measures)  # podman refuses the option twice

    def _start_failure(self, image: str, code: int, output: Sequence[str]) -> RocmWheelsError:
        said = " ".join(line for line in output if line.strip()) or f"exit code {code}"
        remedy = "the message is the engine's own; `invoke doctor` checks it"
        if code not in _START_FAILED:
            remedy = f"{self.name} itself was ended by a signal ({code}); run again"
        elif "executable file" in said and "not found" in said:
            remedy = "the image has no `/bin/sh`, which every builder image needs"
        return ContainerStartFailed(f"{self.name} could not start a container of {image}: {said}", remedy=remedy)

    def _user_options(self) -> tuple[str, ...]:
        """Options that make the command's files the caller's.

        A rootless engine maps its root to the caller, so root it stays: podman's keep-id would copy the whole image
        once to shift its owners.
        """
        return () if self.rootless else ("--user", f"{os.getuid()}:{os.getgid()}")

    # --- images -------------------------------------------------------------------------------------------------------

    def build(
        self,
        dockerfile: Path,
        tag: str,
        *,
        labels: Mapping[str, str] | None = None,
        secrets: Mapping[str, Path] | None = None,
        log: Path,
        on_line: Callable[[str], None],
    ) -> None:
        """Build ``dockerfile``, with its directory as context, as ``tag``; the output also goes to ``log``.

        ``secrets`` are files that a RUN step can mount by name and no layer keeps. Raises :class:`ImageBuildFailed`
        with the first error of the log.
        """
        options = ["--file", str(dockerfile), "--tag", tag]
        options += ["--jobs", "2", "--pull=never"] if self.name == "podman" else ["--progress", "plain"]
        for key, value in sorted((labels or {}).items()):
            options += ["--label", f"{key}={value}"]
        for key, path in sorted((secrets or {}).items()):
            options += ["--secret", f"id={key},src={path}"]
        command = reaped(self._command("build", *options, str(dockerfile.parent)))
        log.parent.mkdir(parents=True, exist_ok=True)
        process = Streamed(command, os.environ | {"DOCKER_BUILDKIT": "1"})
        try:
            with log.open("w", encoding="utf-8") as stream:

                def keep(line: str) -> None:
                    stream.write(line + "\n")
                    stream.flush()
                    on_line(line)

                code = process.stream(keep)
        finally:
            process.close(patience=5)
        if code:
            cause = first_error(log.read_text("utf-8"))
            remedy = f"the whole log is {log}; finished steps are kept, so run again after mending the cause"
            if "buildx component is missing" in cause:
                remedy = "sudo apt-get install docker-buildx (not in every release); or --engine podman"
            raise ImageBuildFailed(f"{self.name} could not build {tag} from {dockerfile}:\n{cause}", remedy=remedy)

    def image_id(self, image: str) -> str | None:
        """The digest of a local image, None when there is none."""
        result = self._query("image", "inspect", "--format", "{{.Id}}", image, check=False)
        return result.stdout.strip().removeprefix("sha256:") or None if result.returncode == 0 else None

    def image_exists(self, image: str) -> bool:
        """Whether ``image`` is local."""
        return self.image_id(image) is not None

    def images(self, repository: str) -> list[str]:
        """The local ``name:tag`` of ``repository``, sorted."""
        listed = self._query("images", "--format", "{{.Repository}}:{{.Tag}}", repository).stdout.split()
        return sorted(name for name in listed if not name.endswith(":<none>"))

    def pull(self, image: str, seconds: float) -> str:
        """Pull ``image`` within ``seconds``; return "" when it is there, else what the engine said."""
        try:
            result = self._query("pull", "--quiet", image, check=False, seconds=seconds)
        except EngineBroken as error:
            return error.message
        return "" if result.returncode == 0 else _last_line(result.stderr)

    def import_base(self, tar: Path, name: str) -> None:
        """Make the image ``name`` of the root file system in ``tar``."""
        self._query("import", "--change", 'CMD ["sh"]', str(tar), name, seconds=600)

    def remove_image(self, image: str) -> None:
        """Remove a local image; nothing happens when it is not there."""
        self._query("rmi", "--force", image, check=False, seconds=600)

    @property
    def storage(self) -> Path:
        """The directory that the engine keeps images in."""
        field = "{{.Store.GraphRoot}}" if self.name == "podman" else "{{.DockerRootDir}}"
        return Path(self._query("info", "--format", field).stdout.strip())

    # --- the engine itself --------------------------------------------------------------------------------------------

    def _command(self, subcommand: str, *options: str) -> list[str]:
        """The client's argv with what this machine needs; only ``run`` and ``build`` start processes."""
        before = [option for measure in self._measures for option in measure.engine]
        after = [option for measure in self._measures for option in measure.command]
        return [self.name, *before, subcommand, *(after if subcommand in ("run", "build") else []), *options]

    def _query(
        self, *words: str, check: bool = True, seconds: float = _QUERY_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        try:
            result = subprocess.run(
                self._command(*words), capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            raise EngineBroken(
                f"`{self.name} {words[0]}` gave no answer in {seconds:.0f} s",
                remedy=f"see whether `{self.name} info` answers; restart the engine if it does not",
            ) from None
        if check and result.returncode:
            raise self._diagnose(words[0], result.stderr)
        return result

    def _diagnose(self, subcommand: str, said: str) -> RocmWheelsError:
        """The error that the engine's words stand for."""
        message = f"`{self.name} {subcommand}` failed: {_last_line(said)}"
        user = os.environ.get("USER", "USER")
        if "permission denied" in said and self.name == "docker":
            remedy = f"sudo usermod -aG docker {user}, then log in again; or --engine podman, which needs no daemon"
            return EnginePermission(message, remedy=remedy)
        if re.search(r"newuidmap|newgidmap|subuid|subgid|insufficient UIDs", said):
            ids = "--add-subuids 100000-165535 --add-subgids 100000-165535"
            remedy = f"sudo apt-get install uidmap; sudo usermod {ids} {user}; podman system migrate"
            return EnginePermission(message, remedy=remedy)
        if self.name == "docker" and re.search(r"[Cc]annot connect|daemon running", said):
            return EngineBroken(message, remedy="sudo systemctl start docker; or --engine podman")
        return EngineBroken(message, remedy=f"run `{self.name} info` by hand; or choose another engine by --engine")

    def _checked_version(self) -> str:
        field = "{{.Client.Version}}" if self.name == "podman" else "{{.Server.Version}}"
        text = self._query("version", "--format", field).stdout.strip()
        numbers = re.match(r"(\d+)\.(\d+)", text)
        oldest = ENGINES[self.name]
        if numbers is None or (int(numbers[1]), int(numbers[2])) < oldest:
            wanted = ".".join(map(str, oldest))
            raise EngineTooOld(
                f"{self.name} {text or '(unknown version)'} is older than {wanted}, which the builder images need",
                remedy=f"install {self.name} {wanted} or newer, or choose another engine by --engine",
            )
        return text

    def _is_rootless(self) -> bool:
        field = "{{.Host.Security.Rootless}}" if self.name == "podman" else "{{.SecurityOptions}}"
        said = self._query("info", "--format", field).stdout
        return said.strip() == "true" if self.name == "podman" else "name=rootless" in said

    @contextmanager
    def _probe(self) -> Iterator[Callable[[Sequence[Measure]], str]]:
        """See :data:`rocm_wheels.build.limits.Probe`: the image is made of this machine's `sh` and removed again."""
        image = f"localhost/rocm-wheels/probe:{os.getpid()}"
        with tempfile.TemporaryDirectory() as folder:
            tar = Path(folder) / "probe.tar"
            write_host_rootfs(tar)
            self.import_base(tar, image)

        def problem(measures: Sequence[Measure]) -> str:
            self._measures = tuple(measures)
            result = self._query("run", "--rm", "--pull=never", image, "sh", "-c", _HAS_NETWORK, check=False)
            return "" if result.returncode == 0 else _last_line(result.stderr) or "containers get no network"

        try:
            yield problem
        finally:
            self.remove_image(image)

    def _remove_leftovers(self) -> None:
        """Remove containers whose owner died without doing so."""
        listed = self._query("ps", "--all", "--quiet", "--filter", f"label={LABEL}").stdout.split()
        for container in listed:
            field = f'{{{{index .Config.Labels "{LABEL}"}}}}'
            label = self._query("inspect", "--format", field, container, check=False).stdout.strip()
            try:
                dead = Owner.parse(label).is_dead
            except ValueError:
                continue
            if dead:
                self._console.warn(f"removing container {container}: the process that started it is gone")
                self._remove(container)

    def _remove(self, container: str) -> None:
        """End and remove a container at once, if it is still there."""
        self._query("kill", container, check=False)  # podman's `rm --force` alone waits ten seconds for it to stop
        self._query("rm", "--force", container, check=False)


def _mount_options(mounts: Sequence[Mount]) -> list[str]:
    options: list[str] = []
    for mount in mounts:
        read_only = ",readonly" if mount.read_only else ""
        options += ["--mount", f"type=bind,source={mount.host},target={mount.container}{read_only}"]
    return options


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
