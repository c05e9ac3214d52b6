"""Install back: what a colleague would do, in a fresh environment, by hash, from one index only."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import packaging
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name

from rocm_wheels.console import Console
from rocm_wheels.errors import InstallFailed
from rocm_wheels.publish.dist import open_dist

Tool = Literal["pip", "uv"]

# Run by the interpreter in question, with this project's packaging appended to its path.
_PROBE = """
import json, platform, sys
sys.path.append(sys.argv[1])
from packaging.tags import sys_tags
tags = [str(tag) for tag in sys_tags()]
print(json.dumps({"tags": tags, "version": platform.python_version(), "libc": " ".join(platform.libc_ver())}))
"""


@dataclass(frozen=True)
class InstallResult:
    """An environment into which a requirement was installed: the versions that ended up in it."""

    tool: Tool
    python: str
    environment: Path
    installed: Mapping[str, str]


def install_back(
    index_url: str,
    requirement: str,
    python: str,
    *,
    tool: Tool,
    hashes: Mapping[str, Sequence[str]],
    environment: Path,
    console: Console,
) -> InstallResult:
    """Install ``requirement`` from ``index_url`` alone into a new environment of ``python``.

    ``requirement`` is ``name==version`` or ``name[extra]==version``.

    ``hashes`` maps every ``name==version`` that may be installed, the requirement among them, to the SHA-256 digests
    that are accepted for it; anything else is refused by the installer. No other index, no cache, no configuration of
    this machine takes part.

    Raises :class:`InstallFailed` with the installer's own last lines.
    """
    with console.step(f"install {requirement} with {tool} for {python}"):
        _fresh_environment(python, environment)
        interpreter = environment / "bin" / "python"
        with tempfile.TemporaryDirectory() as scratch:
            locked = Path(scratch) / "requirements.txt"
            locked.write_text(requirements_with_hashes(hashes), "utf-8")
            _run(
                _command(tool, interpreter, locked),
                f"{tool} cannot install {requirement} for {python}",
                installer_environment(index_url),
            )
    result = InstallResult(tool, python, environment, _installed(interpreter))
    name, _, version = requirement.partition("==")
    name = name.partition("[")[0]  # extras bring further wheels, all of which the hashes name
    if result.installed.get(canonicalize_name(name)) != version:
        raise InstallFailed(
            f"{tool} ended well but {name} is {result.installed.get(canonicalize_name(name), 'absent')}, not {version}",
            remedy="look at the environment: " + str(environment),
        )
    return result


def requirements_with_hashes(hashes: Mapping[str, Sequence[str]]) -> str:
    """A requirements file that allows exactly these files."""
    lines = []
    for requirement, digests in sorted(hashes.items()):
        lines.append(" \\\n    ".join([requirement, *(f"--hash=sha256:{d}" for d in sorted(digests))]))
    return "\n".join(lines) + "\n"


def why_not_installable(wheel: Path, python: str) -> str | None:
    """Why pip of ``python`` refuses this wheel on this machine, or None when it takes it.

    Compares the wheel's tags with those that ``packaging`` finds inside that interpreter, and ``Requires-Python`` with
    its version. ``python`` is a path or a name on PATH; one that does not run (a pyenv shim without a version behind
    it) is a reason too.
    """
    library = str(Path(packaging.__file__).parent.parent)
    try:
        facts = json.loads(_run([python, "-c", _PROBE, library], f"{python} does not run"))
    except InstallFailed as error:
        return " ".join(error.message.split())
    dist = open_dist(wheel)
    supported = frozenset(tag for text in facts["tags"] for tag in parse_tag(text))
    return explain_tags(dist.tags, dist.requires_python, supported, facts["version"], facts["libc"])


def python_version(python: str) -> str:
    """``3.13`` for an interpreter of that version; raises :class:`InstallFailed` when it does not run."""
    return _run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], f"{python} does not run").strip()


def interpreter_path(python: str) -> str:
    """The path of an interpreter that is a path or a name on PATH: pip's ``--python`` takes no names."""
    return _run([python, "-c", "import sys; print(sys.executable)"], f"{python} does not run").strip()


def explain_tags(
    tags: frozenset[Tag], requires_python: str, supported: frozenset[Tag], version: str, libc: str
) -> str | None:
    """The reason in words, or None when one of ``tags`` is supported by Python ``version`` on ``libc``."""
    if not SpecifierSet(requires_python).contains(version, prereleases=True):
        return f"Requires-Python {requires_python}, this is Python {version}"
    if supported & tags:
        return None
    known = {(tag.interpreter, tag.abi) for tag in supported}
    if not any((tag.interpreter, tag.abi) in known for tag in tags):
        wanted = ", ".join(sorted({f"{tag.interpreter}-{tag.abi}" for tag in tags}))
        return f"built for {wanted}, this is Python {version}"
    platforms = ", ".join(sorted({tag.platform for tag in tags}))
    return f"platform {platforms} is newer than, or other than, this one ({libc or 'unknown libc'})"


def _fresh_environment(python: str, environment: Path) -> None:
    command = [sys.executable, "-m", "virtualenv", "--quiet", "--clear", "--no-periodic-update", "--python", python]
    _run([*command, str(environment)], f"no environment for {python}")


def _command(tool: Tool, interpreter: Path, locked: Path) -> list[str]:
    if tool == "pip":
        options = [
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--no-input",
            "--require-hashes",
            "--only-binary",
            ":all:",
        ]
        return [str(interpreter), "-m", "pip", "install", *options, "-r", str(locked)]
    options = ["--no-cache", "--no-config", "--require-hashes", "--only-binary", ":all:"]
    return [_uv(), "pip", "install", "--python", str(interpreter), *options, "-r", str(locked)]


def _uv() -> str:
    """uv beside this Python, or the one on PATH."""
    found = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if not found:
        raise InstallFailed("uv is not installed", remedy="pip install uv, or install back with pip alone")
    return found


def _installed(interpreter: Path) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    )
    names = json.loads(_run([str(interpreter), "-I", "-c", code], "the new environment does not answer"))
    return {canonicalize_name(name): version for name, version in names.items()}


def _run(command: Sequence[str], failure: str, environment: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment or _bare_environment(),
            check=False,
        )
    except OSError as error:
        raise InstallFailed(
            f"{failure}: {command[0]}: {error.strerror}", remedy="name an interpreter of this machine"
        ) from None
    if done.returncode:
        lines = [line for line in without_secrets(done.stdout + done.stderr).splitlines() if line.strip()]
        raise InstallFailed(f"{failure}:\n" + "\n".join(lines[-15:]), remedy="the installer's own words are above")
    return done.stdout


def installer_environment(index_url: str) -> dict[str, str]:
    """The environment in which pip and uv know this index and no other.

    The address goes this way because it may hold credentials, and arguments can be read by every user.
    """
    return {**_bare_environment(), "PIP_INDEX_URL": index_url, "UV_DEFAULT_INDEX": index_url}


def without_secrets(text: str) -> str:
    """An installer's words without the user and password of any address in them."""
    return re.sub(r"//[^/@\s]*@", "//", text).strip()


def _bare_environment() -> dict[str, str]:
    """This process's environment without anything that points pip or uv to other sources."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV"))}
    kept.update({k: os.environ[k] for k in ("PIP_CERT",) if k in os.environ})
    return {**kept, "PIP_CONFIG_FILE": os.devnull}
