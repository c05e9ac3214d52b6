"""Wheels for the publish tests, made by code; small pure ones unless asked otherwise."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str = "minitorch",
    version: str = "0.1+rocm5.7",
    *,
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
    requires_python: str = ">=3.8",
    extras: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """A valid wheel with these files; the same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: {requires_python}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    members = dict(files or {f"{name.replace('-', '_')}/__init__.py": f"version = {version!r}\n".encode()})
    members[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    members[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in members.items())
    members[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member, (2020, 1, 1, 0, 0, 0)), data)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
