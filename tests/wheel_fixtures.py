"""Wheels and libraries for tests, made by code: gcc for ELF files, the zipfile module for archives."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rocm_wheels.wheel.record import digest


def make_wheel(
    folder: Path,
    name: str = "demo",
    version: str = "1.0",
    tag: str = "cp311-cp311-linux_x86_64",
    files: Mapping[str, bytes] | None = None,
    *,
    requires: Sequence[str] = (),
    record: bytes | None = None,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """A wheel with these files, METADATA, WHEEL and a right RECORD (or the one given)."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    members = dict(files if files is not None else {f"{name}/__init__.py": b"value = 1\n"})
    members[f"{info}/METADATA"] = ("\n".join(metadata) + "\n\nA description.\n").encode()
    members[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    rows = "".join(f"{path},{digest(data)},{len(data)}\n" for path, data in members.items())
    members[f"{info}/RECORD"] = record if record is not None else (rows + f"{info}/RECORD,,\n").encode()
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, data in members.items():
            entry = zipfile.ZipInfo(member, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = compression
            entry.external_attr = (0o100755 if ".so" in member else 0o100644) << 16
            archive.writestr(entry, data)
    return path


def make_library(
    folder: Path,
    file: str,
    *,
    soname: str | None = "",
    needs: Sequence[Path] = (),
    code: str = "",
    options: Sequence[str] = (),
) -> Path:
    """A shared library by gcc. ``soname`` "" takes the file name, None leaves it out; ``needs`` are linked in.

    It has a function named after the file that returns 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    function = "f_" + "".join(c if c.isalnum() else "_" for c in file)
    source = folder / f"{file}.c"
    source.write_text(f"{code}\nint {function}(void) {{ return 1; }}\n")
    words = ["gcc", "-shared", "-fPIC", "-O1", "-Wl,--no-as-needed", "-o", str(path), str(source)]
    if soname is not None:
        words.append(f"-Wl,-soname,{soname or file}")
    words += [str(need) for need in needs]
    subprocess.run([*words, *options], check=True)
    source.unlink()
    return path
