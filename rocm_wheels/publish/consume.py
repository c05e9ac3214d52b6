"""What a colleague needs to install a published set: one index, locked requirements, a check script."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import tomli_w
from packaging.pylock import Package, PackageWheel, Pylock
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from rocm_wheels.console import Console
from rocm_wheels.errors import RocmWheelsError, ServerUnreachable, UnmetDependency
from rocm_wheels.publish import verify_env
from rocm_wheels.publish.install import (
    installer_environment,
    interpreter_path,
    python_version,
    requirements_with_hashes,
    without_secrets,
)

# pip's words when no connection comes about.
_NO_ANSWER = re.compile(r"NewConnectionError|ConnectTimeout|ReadTimeout|Connection refused|Name or service not known")


@dataclass(frozen=True)
class LockedWheel:
    """One file that a resolver chose from the index."""

    name: NormalizedName
    version: Version
    url: str
    sha256: str

    @property
    def filename(self) -> str:
        """The wheel's file name, taken from its address."""
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


@dataclass(frozen=True)
class Consumption:
    """Everything written for the colleague, and the two commands to type."""

    files: tuple[Path, ...]
    commands: tuple[str, ...]


def lock(index_url: str, requirements: Sequence[str], python: str, *, console: Console) -> tuple[LockedWheel, ...]:
    """What pip would install for ``requirements`` from ``index_url`` alone on ``python``, with hashes.

    Installs nothing.
    Raises :class:`UnmetDependency` with pip's own words when the index cannot serve the requirements,
    :class:`InstallFailed` when ``python`` does not run.
    """
    python_version(python)
    with tempfile.TemporaryDirectory() as scratch, console.step(f"resolve {', '.join(requirements)} for {python}"):
        report = Path(scratch) / "report.json"
        options = [
            "--dry-run",
            "--ignore-installed",
            "--no-input",
            "--quiet",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
        ]
        command = [sys.executable, "-m", "pip", "--python", interpreter_path(python), "install", *options]
        command += ["--report", str(report), *requirements]
        environment = installer_environment(index_url)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode:
            raise _unmet(index_url, requirements, without_secrets(done.stderr))
        chosen = json.loads(report.read_text("utf-8"))["install"]
    return tuple(sorted((_locked(entry) for entry in chosen), key=lambda w: w.name))


def _unmet(index_url: str, requirements: Sequence[str], said: str) -> RocmWheelsError:
    """The error for pip's words: the index does not answer, has no file that fits this Python, or lacks something."""
    if _NO_ANSWER.search(said):
        return ServerUnreachable(f"{without_secrets(index_url)} does not answer", remedy="check address and server")
    wanted = ", ".join(requirements)
    if "(from versions: none)" in said:
        remedy = "it has none, or none that this Python or platform can take: the project's page lists their tags"
    else:
        remedy = "add what is missing with `invoke wheelhouse`, or publish the companion that fits"
    return UnmetDependency(f"the index cannot serve {wanted} alone:\n{said[-1500:]}", remedy=remedy)


def hashes(locked: Sequence[LockedWheel]) -> dict[str, list[str]]:
    """The digests by ``name==version``, as :func:`rocm_wheels.publish.install_back` takes them."""
    return {f"{wheel.name}=={wheel.version}": [wheel.sha256] for wheel in locked}


def consume(
    index_url: str, requirements: Sequence[str], pythons: Sequence[str], folder: Path, *, console: Console
) -> Consumption:
    """Write ``pip.conf``, ``uv.toml``, ``verify_env.py``, and per Python locked requirements and a ``pylock`` file.

    ``requirements`` are the ``name==version`` of the published set, ``pythons`` interpreters on this machine. No file
    names a second index and none holds credentials.

    Raises :class:`UnmetDependency` when the set cannot be installed from the index alone.
    """
    public = without_credentials(index_url)
    locks = {python_version(python): lock(index_url, requirements, python, console=console) for python in pythons}
    texts = {"pip.conf": pip_conf(public), "uv.toml": uv_toml(public)}
    for version, locked in locks.items():
        texts[f"requirements-{version}.txt"] = f"--index-url {public}\n" + requirements_with_hashes(hashes(locked))
        texts[f"pylock.py{version.replace('.', '')}.toml"] = pylock(public, locked)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        part = folder / f".{name}.part"
        part.write_text(text, "utf-8")
        part.replace(folder / name)
    shutil.copyfile(str(verify_env.__file__), folder / "verify_env.py")
    first = next(iter(locks))
    commands = (
        f"pip install --require-hashes -r requirements-{first}.txt",
        f"uv pip install --require-hashes -r requirements-{first}.txt",
        f"python verify_env.py requirements-{first}.txt",
    )
    return Consumption(tuple(sorted(folder / name for name in [*texts, "verify_env.py"])), commands)


def pip_conf(index_url: str) -> str:
    """pip's configuration with this one index; a second one would let a public package of the same name win."""
    return f"[global]\nindex-url = {index_url}\n"


def uv_toml(index_url: str) -> str:
    """uv's configuration with this one index in the place of its default."""
    return tomli_w.dumps({"index": [{"name": "rocm-wheels", "url": index_url, "default": True}]})


def pylock(index_url: str, locked: Sequence[LockedWheel]) -> str:
    """The locked set as PEP 751 defines it."""
    packages = [
        Package(
            name=wheel.name,
            version=wheel.version,
            index=index_url,
            wheels=[
                PackageWheel(name=wheel.filename, url=without_credentials(wheel.url), hashes={"sha256": wheel.sha256})
            ],
        )
        for wheel in locked
    ]
    document = Pylock(lock_version=Version("1.0"), created_by="rocm-wheels", packages=packages)
    document.validate()
    return tomli_w.dumps(dict(document.to_dict()))


def without_credentials(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _locked(entry: Mapping[str, object]) -> LockedWheel:
    download, metadata = entry["download_info"], entry["metadata"]
    assert isinstance(download, dict) and isinstance(metadata, dict)
    digest = download["archive_info"]["hashes"]["sha256"]
    return LockedWheel(canonicalize_name(metadata["name"]), Version(metadata["version"]), download["url"], digest)
