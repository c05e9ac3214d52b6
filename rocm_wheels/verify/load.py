"""Load every library of an installed wheel alone, in a process and mount namespace of its own.

/opt/rocm and the loader's cache are hidden, so that the builder's ROCm satisfies nothing by accident. Without the right
to make a mount namespace (an unprivileged container) they stay visible, which is said in the report.
"""

from __future__ import annotations

import posixpath
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.elf.reader import EM_X86_64
from rocm_wheels.repair.providers import is_rocm, stem
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.outside import declared
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
    """Cold-load every library of the wheel as installed in ``site`` by ``python``.

    Those that need what another distribution brings are left out: cold, they cannot load.
    """
    hide = can_hide()
    hidden = hidden_libraries(subject) if hide else []
    own = {stem(posixpath.basename(member)) for member in subject.libraries}
    for member, elf in sorted(subject.elves.items()):
        if elf.machine != EM_X86_64 or elf.is_executable or not elf.is_dynamic or needs_others(subject, member):
            continue
        answer = _load(python, site / member, hidden, hide=hide)
        if answer.error:
            yield finding("cold-load", member, answer.error)
        for file in answer.files:
            base = posixpath.basename(file)
            outside = is_rocm(base) and not file.startswith(f"{site}/")
            if outside and (not subject.external or stem(base) in own):
                yield finding("foreign-library", member, f"{file} was loaded")


def needs_others(subject: Subject, member: str) -> bool:
    """Whether the file needs, at any remove, a library that a requirement outside the set brings."""
    todo, seen = [member], set()
    while todo:
        elf = subject.libraries[todo.pop()]
        for name in elf.needed:
            inside = subject.member_of(name)
            if inside is None and name not in subject.external and declared(subject, name):
                return True
            if inside is not None and inside not in seen:
                seen.add(inside)
                todo.append(inside)
    return False


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
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return _Answer(error=f"not loaded after {_LOAD_SECONDS} seconds")
    if done.returncode == 0:
        return _Answer(files=tuple(done.stdout.splitlines()))
    said = done.stderr.strip().splitlines()
    return _Answer(error=said[-1] if said else f"the process ended with {done.returncode}")
