"""Install the wheel and load it: every library alone, in a process and mount namespace of its own.

/opt/rocm and the loader's cache are hidden, so that the builder's ROCm satisfies nothing by accident. Without the right
to make a mount namespace (an unprivileged container) they stay visible, which is said in the report.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.elf.reader import EM_X86_64
from rocm_wheels.repair.providers import is_rocm, stem
from rocm_wheels.verify.catalogue import explain
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject

# In the namespace: what the builder has of ROCm is covered by empty directories and files. Debian's ROCm lies among
# the system's libraries, so its files are covered one by one.
_HIDE = """
set -e
for dir in /opt/rocm* /opt/amdgpu; do if [ -d "$dir" ]; then mount -t tmpfs none "$dir"; fi; done
if [ -e /etc/ld.so.cache ]; then mount --bind /dev/null /etc/ld.so.cache; fi
for file in $HIDDEN; do mount --bind /dev/null "$file"; done
exec "$@"
"""

_LOAD = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
with open("/proc/self/maps", encoding="utf-8") as maps:
    print("\\n".join(sorted({line.split(None, 5)[5].strip() for line in maps if "/" in line})))
"""

_LOAD_SECONDS = 300
_DIRECTORIES = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"))


def can_hide() -> bool:
    """Whether this process may make a mount namespace."""
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return done.returncode == 0


def hidden_libraries(subject: Subject) -> list[str]:
    """Files of ROCm among the system's that a wheel must not fall back to; none when it declares ROCm as external."""
    if subject.external:
        return []
    found = (path for directory in _DIRECTORIES for path in sorted(directory.glob("lib*.so*")))
    return [str(path) for path in found if is_rocm(path.name) and not path.is_symlink()]


def load_all(subject: Subject, python: str, site: Path) -> Iterator[Finding]:
    """Cold-load every library of the wheel as installed in ``site`` by ``python``."""
    hide = can_hide()
    hidden = hidden_libraries(subject) if hide else []
    own = {stem(posixpath.basename(member)) for member in subject.elves}
    for member, elf in sorted(subject.elves.items()):
        if elf.machine != EM_X86_64 or elf.is_executable or not elf.is_dynamic:
            continue
        answer = _load(python, site / member, hidden, hide=hide)
        if answer.error:
            yield Finding(explain("cold-load"), member, answer.error)
        for file in answer.files:
            base = posixpath.basename(file)
            outside = is_rocm(base) and not file.startswith(f"{site}/")
            if outside and (not subject.external or stem(base) in own):
                yield Finding(explain("foreign-library"), member, f"{file} was loaded")


@dataclass(frozen=True)
class _Answer:
    """What a cold load said: the files mapped into the process, or why it failed."""

    files: tuple[str, ...] = ()
    error: str = ""


def _load(python: str, file: Path, hidden: Sequence[str], *, hide: bool) -> _Answer:
    command = [python, "-I", "-c", _LOAD, str(file)]
    if hide:
        command = ["unshare", "--mount", "sh", "-c", _HIDE, "sh", *command]
    environment = {"PATH": "/usr/bin:/bin", "HIDDEN": " ".join(hidden)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=_LOAD_SECONDS
        )
    except subprocess.TimeoutExpired:
        return _Answer(error=f"not loaded after {_LOAD_SECONDS} seconds")
    if done.returncode == 0:
        return _Answer(files=tuple(done.stdout.splitlines()))
    said = done.stderr.strip().splitlines()
    return _Answer(error=said[-1] if said else f"the process ended with {done.returncode}")


def install_and_load(subject: Subject, python: str) -> Iterator[Finding]:
    """Install by pip (symlinked environment) and uv (copied), import the package, cold-load every library."""
    wheel = subject.archive.path.resolve()
    for tool, copies in (("pip", False), ("uv", True)):
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-verify-") as folder:
            environment = Path(folder) / "venv"
            problem = _install(python, environment, wheel, tool, copies=copies)
            if problem:
                yield Finding(explain("install"), wheel.name, f"{tool}: {problem}")
                continue
            interpreter = environment / "bin" / "python"
            site = Path(_output([str(interpreter), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]))
            yield from _import(subject, interpreter)
            if tool == "pip":
                yield from load_all(subject, str(interpreter), site)


def _install(python: str, environment: Path, wheel: Path, tool: str, *, copies: bool) -> str:
    """Why the installation failed, or ""."""
    make = [sys.executable, "-m", "virtualenv", "--quiet", "--python", python, str(environment)]
    target = str(environment / "bin" / "python")
    install = (
        [target, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
        if tool == "pip"
        else [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--python",
            target,
            str(wheel),
        ]
    )
    for command in ([*make, "--copies"] if copies else make, install):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip() or done.stdout.strip())[-400:]
    return ""


def _import(subject: Subject, interpreter: Path) -> Iterator[Finding]:
    for package in _packages(subject):
        seconds = subject.options.import_seconds
        code = f"import faulthandler; faulthandler.dump_traceback_later({seconds - 1}, exit=True); import {package}"
        environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
        done = subprocess.run(
            [str(interpreter), "-I", "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            yield Finding(explain("import"), package, done.stderr.strip()[-600:])


def _packages(subject: Subject) -> list[str]:
    """Top-level packages of the wheel that have an ``__init__.py``."""
    return sorted({n.partition("/")[0] for n in subject.content if n.count("/") == 1 and n.endswith("/__init__.py")})


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
