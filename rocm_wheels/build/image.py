"""Builder images by content: an image is rebuilt when its Dockerfile, a file it copies, or its base's name changes."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from rocm_wheels.build.base_image import ensure_base
from rocm_wheels.build.container import ContainerEngine
from rocm_wheels.build.engine import Engine
from rocm_wheels.config import PROJECT_ROOT, Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import HostToolMissing, MatrixError, NoSpace, SettingError
from rocm_wheels.release import Image

DOCKER = PROJECT_ROOT / "docker"
REPOSITORY = "localhost/rocm-wheels"

# The finished image, and its largest layer again as an archive while it is committed.
_TIMES_SIZE = 2.1
_HOST_TOOLS = ("hipcc", "cmake", "ninja", "ccache", "git")
_TOOLS = "tools-requirements.txt"
_COPY = re.compile(r"^COPY (?!--from)(?P<sources>.*) \S+$", re.MULTILINE)
_STEP = re.compile(r"^(\[\d+/\d+\] STEP \d+/\d+: |#\d+ \[.*?\] )(?P<step>.*)")


@dataclass(frozen=True)
class ImageRef:
    """A local image: its name and tag, and the digest of its content."""

    tag: str
    digest: str


def image_inputs(image: Image, *, folder: Path = DOCKER) -> tuple[Path, ...]:
    """The files that ``image`` is made of: its Dockerfile and what that copies. Raises :class:`MatrixError`."""
    dockerfile = folder / image.dockerfile
    try:
        copied = [name for copy in _COPY.finditer(dockerfile.read_text("utf-8")) for name in copy["sources"].split()]
    except OSError as error:
        raise MatrixError(f"image {image.name}: {dockerfile} cannot be read: {error.strerror}") from error
    paths = (dockerfile, *(folder / name for name in sorted(set(copied))))
    for path in paths:
        if not path.is_file():
            raise MatrixError(f"image {image.name}: {dockerfile.name} copies {path.name}, which is not in {folder}")
    return paths


def image_tag(image: Image, *, folder: Path = DOCKER) -> str:
    """``localhost/rocm-wheels/<image>:<12 hex digits of its inputs>``. Raises :class:`MatrixError`."""
    return f"{REPOSITORY}/{image.name}:{_digest(image, image_inputs(image, folder=folder))[:12]}"


def compilers_digest(image: Image, *, folder: Path = DOCKER) -> str:
    """Hash of what decides the bytes of a wheel: the inputs of the image without this project's own tools."""
    return _digest(image, [path for path in image_inputs(image, folder=folder) if path.name != _TOOLS])


def _digest(image: Image, inputs: Iterable[Path]) -> str:
    digest = hashlib.sha256(f"{image.name}\n{image.base}\n".encode())
    for path in inputs:
        digest.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def ensure_image(image: Image, *, engine: Engine, settings: Settings, console: Console) -> ImageRef:
    """Have ``image`` ready to run in ``engine``, building it when no image of its tag is there.

    With ``--engine none`` the machine itself is the image. Raises :class:`HostToolMissing`, :class:`NoSpace`,
    :class:`BaseUnavailable` or :class:`ImageBuildFailed`.
    """
    if not isinstance(engine, ContainerEngine):
        check_host_tools()
        return ImageRef("host", "host")
    tag = image_tag(image)
    settings.cache.mkdir(parents=True, exist_ok=True)
    with FileLock(settings.cache / f"image-{image.name}.lock"):
        if digest := engine.image_id(tag):
            return ImageRef(tag, digest)
        _check_space(engine.storage, image)
        ensure_base(image, engine=engine, settings=settings, console=console)
        with console.step(f"building {tag} (minutes, {image.gigabytes:.0f} GB in {engine.storage})"):
            engine.build(
                DOCKER / image.dockerfile,
                tag,
                secrets=_secrets(settings),
                log=settings.cache / "logs" / f"image-{image.name}.log",
                on_line=_steps_shown(console),
            )
    return ImageRef(tag, engine.image_id(tag) or "")


def prune_images(images: Sequence[Image], *, engine: ContainerEngine, console: Console) -> tuple[str, ...]:
    """Remove the images of this project whose inputs have changed since; return their tags."""
    current = {image_tag(image) for image in images}
    removed = []
    for image in images:
        for tag in engine.images(f"{REPOSITORY}/{image.name}"):
            if tag not in current:
                with console.step(f"removing {tag}"):
                    engine.remove_image(tag)
                removed.append(tag)
    return tuple(removed)


def check_host_tools() -> None:
    """Raise :class:`HostToolMissing` unless what a build calls is on this machine's PATH."""
    missing = [tool for tool in _HOST_TOOLS if shutil.which(tool) is None]
    if missing:
        raise HostToolMissing(
            f"--engine none builds with this machine's own tools, and PATH has no {', '.join(missing)}",
            remedy="install them (ROCm's bin directory belongs on PATH), or let a container have them: --engine podman",
        )


def _check_space(storage: Path, image: Image) -> None:
    if not storage.is_dir():  # the engine is on another machine
        return
    free, needed = shutil.disk_usage(storage).free, image.gigabytes * _TIMES_SIZE * 1e9
    if free < needed:
        raise NoSpace(
            f"{storage} has {free / 1e9:.1f} GB free; building {image.name} takes {needed / 1e9:.0f} GB",
            remedy="remove old images: invoke image --prune; or move the engine's storage to another disk",
        )


def _secrets(settings: Settings) -> dict[str, Path]:
    """The CA bundle, for pip inside the build only: a secret mount leaves nothing in a layer."""
    if not settings.ca_bundle:
        return {}
    bundle = Path(settings.ca_bundle).expanduser().resolve()
    if not bundle.is_file():
        raise SettingError(f"ca_bundle is {settings.ca_bundle!r}, which is not a file")
    return {"ca_bundle": bundle}


def _steps_shown(console: Console) -> Callable[[str], None]:
    """A line callback that shows each Dockerfile instruction once, and what the build notes or refuses."""
    shown: set[str] = set()

    def handle(line: str) -> None:
        step = _STEP.match(line)
        if step and step["step"] not in shown:
            shown.add(step["step"])
            console.line(f"  {step['step'][:100]}")
        elif line.startswith("note: "):
            console.line(f"  {line}")

    return handle
