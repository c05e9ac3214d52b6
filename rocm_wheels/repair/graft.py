"""Which files of the machine a fat wheel takes: needs of needs, libraries opened by name, data, licences.

Reads the machine, changes nothing.
"""

from __future__ import annotations

import functools
import mmap
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import LibraryMissing
from rocm_wheels.repair.model import Graft
from rocm_wheels.repair.providers import DATA, is_rocm, serves, stem
from rocm_wheels.wheel.tags import system_libraries

DEFAULT_LIB_DIRS = (
    Path("/opt/rocm/lib"),
    Path("/usr/lib/x86_64-linux-gnu"),
    Path("/usr/lib64"),
    Path("/usr/lib"),
    Path("/opt/amdgpu/lib64"),
    Path("/opt/amdgpu/lib/x86_64-linux-gnu"),
)

_LITERAL = re.compile(rb"(?<![\w./+-])lib[\w+-]+\.so(?:\.\d+)*(?=\0)")


@dataclass(frozen=True)
class Found:
    """A library on the machine: the file that its name leads to and what it needs and opens."""

    name: str
    path: Path
    needed: tuple[str, ...]
    opens: tuple[str, ...]


def closure(needs: dict[str, str], lib_dirs: tuple[Path, ...], outside: Iterable[str]) -> dict[str, Found]:
    """Every library that ``needs`` (name → who needs it) leads to, by name; those ``outside`` are not followed.

    Raises :class:`LibraryMissing` naming the library, who needs it and where it was looked for.
    """
    left = set(outside) | system_libraries()
    found: dict[str, Found] = {}
    queue = dict(needs)
    while queue:
        name, needed_by = queue.popitem()
        if name in found or name in left:
            continue
        library = find(name, lib_dirs)
        if library is None:
            raise LibraryMissing(
                f"{needed_by} needs {name}, which is in none of {', '.join(map(str, lib_dirs))}",
                remedy="repair where the wheel was built, or name the directory: --lib-dir DIR",
            )
        found[name] = library
        queue.update(dict.fromkeys(library.needed, name))
        queue.update({opened: name for opened in library.opens if find(opened, lib_dirs)})
    return found


@functools.cache
def find(name: str, lib_dirs: tuple[Path, ...]) -> Found | None:
    """The library called ``name`` in the first of ``lib_dirs`` that has it."""
    path = next((d / name for d in lib_dirs if (d / name).is_file()), None)
    if path is None:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = ElfFile.parse(data, name)
        needed, soname = elf.needed, elf.soname or name
        opens = _opened(data, soname) if is_rocm(name) else ()
        del elf
    return Found(name, path, needed, opens)


def _opened(data: mmap.mmap, own: str) -> tuple[str, ...]:
    """ROCm libraries that this one opens by a name in its data; bare names that only developers have are left out."""
    names = {m.decode("ascii") for m in _LITERAL.findall(data)}
    return tuple(sorted(n for n in names if is_rocm(n) and n != own and not n.endswith(".so")))


def data_files(library: Found, libdir: str, archs: tuple[str, ...]) -> list[Graft]:
    """The data that ``library`` looks for beside itself, for ``archs`` only, at the same place in the wheel."""
    base = library.path.parent
    grafts = []
    for pattern in DATA.get(stem(library.name), ()):
        for folder in sorted(base.glob(pattern)):
            for file in sorted(p for p in folder.rglob("*") if p.is_file() and serves(p.name, archs)):
                grafts.append(Graft(_join(libdir, file.relative_to(base).as_posix()), file))
    return grafts


def _join(folder: str, relative: str) -> str:
    """``folder/relative`` with each leading ``../`` taken off ``folder``."""
    parts = folder.split("/")
    while relative.startswith("../"):
        parts.pop()
        relative = relative[3:]
    return "/".join([*parts, relative])


@functools.cache
def origin(path: Path) -> tuple[str, str, Path | None]:
    """Package, version and licence file of a file on this machine, as far as dpkg or rpm knows."""
    real = path.resolve()
    if shutil.which("dpkg-query"):
        for candidate in (path, real, Path(str(real).removeprefix("/usr"))):
            done = _output("dpkg-query", "--search", str(candidate))
            if done:
                package = done.splitlines()[0].partition(": ")[0].partition(":")[0]
                version = _output("dpkg-query", "--show", "--showformat=${Version}", package)
                licence = Path(f"/usr/share/doc/{package}/copyright")
                return package, version, licence if licence.is_file() else None
    if shutil.which("rpm"):
        done = _output("rpm", "--query", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE}", "--file", str(real))
        if done:
            package, _, version = done.partition(" ")
            folder = Path(f"/usr/share/licenses/{package}")
            files = sorted(folder.glob("*")) if folder.is_dir() else []
            return package, version, files[0] if files else None
    return "", "", None


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
