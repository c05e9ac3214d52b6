"""Check an environment that was installed from a ROCm index: ``python verify_env.py requirements.txt``.

This file is handed to colleagues as it is, so it uses nothing but the standard library. It finds what pip does not
complain about: a ROCm wheel that a later install swapped for a CUDA one, NVIDIA packages that came along, files of one
distribution overwritten by another, and two copies of the HIP runtime.
"""

from __future__ import annotations

import csv
import importlib.metadata
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath


def problems(expected: Mapping[str, str]) -> list[str]:
    """What is wrong with the environment of the running Python; empty when nothing is.

    ``expected`` maps distribution names to the versions that were published.
    """
    installed = {_normal(d.metadata["Name"]): d for d in importlib.metadata.distributions() if d.metadata["Name"]}
    found = []
    for name, version in sorted(expected.items()):
        there = installed.get(_normal(name))
        if there is None:
            found.append(f"{name} {version} is not installed")
        elif there.version != version:
            found.append(f"{name} is {there.version}, not {version}: another install has swapped it")
        else:
            found += _overwritten(name, there)
    nvidia = sorted(name for name in installed if name.startswith("nvidia-"))
    if nvidia:
        found.append(f"NVIDIA packages came in, which a ROCm build does not use: {', '.join(nvidia)}")
    return found + _claimed_twice(installed) + _runtimes(installed)


def _overwritten(name: str, distribution: importlib.metadata.Distribution) -> list[str]:
    """Files whose size is not the one that the wheel recorded; one example is enough to know."""
    for file, size in _recorded(distribution):
        path = Path(str(distribution.locate_file(file)))
        if not path.exists():
            return [f"{name}: {file} is missing"]
        if size is not None and path.stat().st_size != size:
            return [f"{name}: {file} has {path.stat().st_size} bytes, its wheel had {size}: it was overwritten"]
    return []


def _recorded(distribution: importlib.metadata.Distribution) -> list[tuple[str, int | None]]:
    """Files and sizes of RECORD without compiled Python. ``distribution.files`` leaves out what is missing."""
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    return [(row[0], int(row[2]) if row[2] else None) for row in rows if len(row) == 3 and not row[0].endswith(".pyc")]


def _claimed_twice(installed: Mapping[str, importlib.metadata.Distribution]) -> list[str]:
    owners: dict[str, set[str]] = {}
    for name, distribution in installed.items():
        for file, _ in _recorded(distribution):
            parts = PurePosixPath(file).parts
            if file.endswith((".py", ".so")) and len(parts) > 1 and ".." not in parts:
                owners.setdefault(file, set()).add(name)
    pairs = {frozenset(names): path for path, names in owners.items() if len(names) > 1}
    return [
        f"{' and '.join(sorted(names))} both own {PurePosixPath(path).parts[0]}/: the last one installed has won"
        for names, path in sorted(pairs.items(), key=lambda item: item[1])
    ]


def _runtimes(installed: Mapping[str, importlib.metadata.Distribution]) -> list[str]:
    folders = {
        str(Path(str(distribution.locate_file(file))).parent)
        for distribution in installed.values()
        for file, _ in _recorded(distribution)
        if PurePosixPath(file).name.startswith("libamdhip64.so")
    }
    if len(folders) < 2:
        return []
    return [f"{len(folders)} copies of the HIP runtime are installed: {', '.join(sorted(folders))}"]


def read_expected(text: str) -> dict[str, str]:
    """The pins of a requirements file."""
    return dict(re.findall(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", text, re.MULTILINE))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Print every problem; 0 when there is none, 1 otherwise, 2 without a requirements file."""
    if len(sys.argv) != 2:
        print("usage: python verify_env.py requirements.txt", file=sys.stderr)
        return 2
    found = problems(read_expected(Path(sys.argv[1]).read_text("utf-8")))
    print("\n".join(found) if found else "the environment is as published")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
