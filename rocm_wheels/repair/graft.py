"""Which files of the machine a fat wheel takes: needs of needs, libraries opened by name, data, licences.

Reads the machine, changes nothing.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rocm_wheels.errors import DataMissing, LibraryMissing
from rocm_wheels.repair.facts import ElfFacts, file_facts
from rocm_wheels.repair.model import Graft
from rocm_wheels.repair.providers import DATA, DATA_ELSEWHERE, DATA_MUST, OPENS, is_rocm, stem
from rocm_wheels.wheel.tags import system_libraries

DEFAULT_LIB_DIRS = (
    Path("/opt/rocm/lib"),
    Path("/usr/lib/x86_64-linux-gnu"),
    Path("/usr/lib64"),
    Path("/usr/lib"),
    Path("/opt/amdgpu/lib64"),
    Path("/opt/amdgpu/lib/x86_64-linux-gnu"),
)

# Directories of share/doc that are not called like the library (AMD's packages).
_AMD_DOC = {"amdhip64": "hip", "hiprtc": "hip", "hiprtc-builtins": "hip", "hsa-runtime64": "hsa-rocr"}


@dataclass(frozen=True)
class Found:
    """A library on the machine: the name that it is needed by, the file that it leads to, and its facts."""

    name: str
    path: Path
    facts: ElfFacts
    needed_by: str


@dataclass(frozen=True)
class Closure:
    """The libraries to graft by name, and what was opened by name but is there under another name only."""

    found: dict[str, Found]
    notes: tuple[str, ...]


def closure(needs: Mapping[str, str], lib_dirs: tuple[Path, ...], outside: Callable[[str], bool]) -> Closure:
    """Every library that ``needs`` (name → who needs it) leads to; those ``outside`` are not followed.

    Raises :class:`LibraryMissing` naming each library that is in none of ``lib_dirs`` and who needs it.
    """
    found: dict[str, Found] = {}
    missing: dict[str, str] = {}
    opened: dict[str, str] = {}
    queue = list(needs.items())
    while queue or opened:
        if not queue:  # names that are opened come after all needs, so that an alias of a need is seen as one
            queue, opened = list(_worth_opening(opened, found, lib_dirs).items()), {}
            continue
        name, needed_by = queue.pop()
        if name in found or name in system_libraries() or outside(name):
            continue
        library = find(name, lib_dirs, needed_by)
        if library is None:
            missing[name] = needed_by
            continue
        found[name] = library
        queue += [(needed, name) for needed in library.facts.needed]
        opened.update((n, name) for n in _opened(library, lib_dirs) if n not in found and not outside(n))
    if missing:
        listed = "; ".join(f"{by} needs {name}" for name, by in sorted(missing.items()))
        raise LibraryMissing(
            f"{listed}: in none of {', '.join(map(str, lib_dirs))}",
            remedy="repair in the image that built it (--image NAME), name its directory (--lib-dir), or --exclude it",
        )
    return Closure(dict(sorted(found.items())), _aliases(found, lib_dirs))


def find(name: str, lib_dirs: tuple[Path, ...], needed_by: str) -> Found | None:
    """The library called ``name`` in the first of ``lib_dirs`` that has it."""
    path = next((d / name for d in lib_dirs if (d / name).is_file()), None)
    return None if path is None else Found(name, path, file_facts(path, opens=is_rocm(name)), needed_by)


def _opened(library: Found, lib_dirs: tuple[Path, ...]) -> Iterator[str]:
    """ROCm libraries of this machine that ``library`` opens by name."""
    for name in library.facts.opens:
        if is_rocm(name) and any((d / name).is_file() for d in lib_dirs):
            yield name
    for pattern in OPENS.get(stem(library.name), ()):
        places = sorted(p for d in lib_dirs for p in d.glob(pattern))
        yield from (file_facts(p).soname or p.name for p in places[:1])


def _worth_opening(opened: Mapping[str, str], found: Mapping[str, Found], lib_dirs: tuple[Path, ...]) -> dict[str, str]:
    """Of the ``opened`` names those that lead to a file which is not taken yet."""
    taken = {library.path.resolve() for library in found.values()}
    worth: dict[str, str] = {}
    for name, by in sorted(opened.items(), key=lambda item: (-len(item[0]), item[0])):
        path = next((d / name for d in lib_dirs if (d / name).is_file()), None)
        if path is not None and path.resolve() not in taken:
            taken.add(path.resolve())
            worth[name] = by
    return worth


def _aliases(found: Mapping[str, Found], lib_dirs: tuple[Path, ...]) -> tuple[str, ...]:
    real = {library.path.resolve(): name for name, library in found.items()}
    notes = set()
    for library in found.values():
        for name in _opened(library, lib_dirs):
            path = next((d / name for d in lib_dirs if (d / name).is_file()), None)
            if name not in found and path is not None and path.resolve() in real:
                notes.add(f"{library.name} opens {name} by name; the wheel has it as {real[path.resolve()]} only")
    return tuple(sorted(notes))


def data_files(library: Found, libdir: str, archs: tuple[str, ...]) -> list[Graft]:
    """The data that ``library`` looks for beside itself, for ``archs`` only, at the place where it looks in the wheel.

    Without archs all of it. Raises :class:`DataMissing` for a library that cannot work without, and for an empty file.
    """
    from rocm_wheels.gpu.datafiles import serves, targets_of

    grafts: dict[str, Graft] = {}
    for file, place in _data_on_machine(library):
        if archs and not serves(file.name if targets_of(file.name) else place, archs):
            continue
        if not file.stat().st_size:
            raise DataMissing(f"{file} of {library.name} is empty", remedy="install its package again")
        member = posixpath.normpath(posixpath.join(libdir, place))
        grafts.setdefault(member, Graft(member, file))
    if not grafts and stem(library.name) in DATA_MUST:
        where = " or ".join(str(library.path.parent / pattern) for pattern in DATA[stem(library.name)])
        raise DataMissing(
            f"{library.path} reads data at run time and aborts without; {where} has none",
            remedy=f"install the package with the data, or leave {library.name} outside (--exclude)",
        )
    return list(grafts.values())


def _data_on_machine(library: Found) -> Iterator[tuple[Path, str]]:
    """Data files with their place in a wheel, relative to the library's directory."""
    base, name = library.path.parent, stem(library.name)
    beside = [(folder, os.path.relpath(folder, base)) for p in DATA.get(name, ()) for folder in sorted(base.glob(p))]
    for folder, place in (*beside, *((base / source, place) for source, place in DATA_ELSEWHERE.get(name, ()))):
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            yield file, f"{place}/{file.relative_to(folder).as_posix()}"


def data_notes(library: Found, data: Iterable[Graft], archs: Iterable[str]) -> Iterator[str]:
    """What ``library`` will miss in its own ``data``: all of it, or that of one of ``archs``."""
    from rocm_wheels.gpu.datafiles import serves, targets_of

    name, files = stem(library.name), [graft.member for graft in data]
    if name not in DATA:
        return
    if not files:
        yield f"{library.name} is grafted without data: there is none beside {library.path}"
    named = [file for file in files if targets_of(file)]
    for arch in archs:
        if named and not any(serves(file, (arch,)) for file in named):
            yield f"{library.name} has no data for {arch} on this machine"


@functools.cache
def origin(path: Path) -> tuple[str, str, Path | None, str]:
    """Package, version, licence file and purl of a file on this machine, as far as dpkg, rpm or AMD's layout tell."""
    real = path.resolve()
    if shutil.which("dpkg-query"):
        for candidate in (path, real, Path(str(real).removeprefix("/usr"))):
            done = _output("dpkg-query", "--search", str(candidate))
            if done:
                package = done.splitlines()[0].partition(": ")[0].partition(":")[0]
                version = _output("dpkg-query", "--show", "--showformat=${Version}", package)
                copyright_ = Path(f"/usr/share/doc/{package}/copyright")
                licence = copyright_ if copyright_.is_file() else _amd_licence(real, package)
                return package, version, licence, _purl("deb", package, version)
    if shutil.which("rpm"):
        done = _output("rpm", "--query", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE}", "--file", str(real))
        if done:
            package, _, version = done.partition(" ")
            folder = Path(f"/usr/share/licenses/{package}")
            files = sorted(folder.glob("*")) if folder.is_dir() else []
            licence = files[0] if files else _amd_licence(real, package)
            return package, version, licence, _purl("rpm", package, version)
    component = stem(real.name).removeprefix("lib").lower()
    release = real.parent.parent / ".info" / "version"  # of AMD's archives, which no package manager knows
    if release.is_file():
        return component, release.read_text("utf-8").strip(), _amd_licence(real, component), ""
    return "", "", None, ""


def _amd_licence(real: Path, package: str) -> Path | None:
    """The licence text that AMD's packages put into ``share/doc`` of the release, by package or library name."""
    doc = real.parent.parent / "share" / "doc"
    for name in (package, stem(real.name).removeprefix("lib").lower()):
        if found := sorted((doc / _AMD_DOC.get(name, name)).glob("LICENSE*")):
            return found[0]
    return None


def _purl(kind: str, package: str, version: str) -> str:
    """The package URL of a distribution's package."""
    release = Path("/etc/os-release").read_text("utf-8") if Path("/etc/os-release").is_file() else ""
    system = re.search(r"^ID=\"?([\w.-]+)", release, re.MULTILINE)
    return f"pkg:{kind}/{system[1] if system else 'linux'}/{package}@{quote(version, safe='')}"


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
