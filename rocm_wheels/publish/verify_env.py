"""Check an environment that was installed from a ROCm index: ``python verify_env.py requirements.txt``.

This file is handed to colleagues as it is, so it uses nothing but the standard library. It finds what pip does not
complain about: a ROCm wheel that a later install swapped for a CUDA one or one without HIP, NVIDIA packages that came
along, files of one distribution overwritten by another, two copies of the HIP runtime, a ROCm base that lies where its
framework does not look, and a GPU of this machine that nothing installed has code for.
"""

from __future__ import annotations

import csv
import importlib.metadata
import mmap
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

_BASE = "rocm-layers-"
_KFD = Path("/sys/class/kfd/kfd/topology/nodes")
_TARGET = re.compile(rb"hipv4-amdgcn-amd-amdhsa--(gfx[0-9a-f]+)")


def problems(expected: Mapping[str, str]) -> list[str]:
    """What is wrong with the environment of the running Python; empty when nothing is.

    ``expected`` maps distribution names to the versions that were published.
    """
    installed = _installed()
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
    found += _claimed_twice(installed) + _runtimes(installed) + _without_hip(installed) + _base_elsewhere(installed)
    return found + [text for served, text in gpus(expected) if not served]


def gpus(expected: Mapping[str, str]) -> list[tuple[bool, str]]:
    """For each GPU that the kernel shows: whether what was published has code and data for it, and a sentence."""
    installed = _installed()
    ours = [d for name, d in installed.items() if name in {_normal(n) for n in expected}]
    code = _code_targets(ours)
    layers = {name.removeprefix(f"{_BASE}device-") for name in installed if name.startswith(f"{_BASE}device-")}
    extras = {
        (d.metadata["Name"], e) for d in ours for e in d.metadata.get_all("Provides-Extra") or () if e[:3] == "gfx"
    }
    verdicts = []
    for gpu in _present_gpus():
        names = [name for name, extra in sorted(extras) if extra == gpu]
        if code and gpu not in code:
            verdicts.append((False, f"GPU {gpu}: no code for it, there is code for {', '.join(sorted(code))}"))
        elif layers and gpu not in layers and names:
            verdicts.append((False, f"GPU {gpu}: its data is not installed: pip install '{names[0]}[{gpu}]'"))
        elif not code:
            verdicts.append((True, f"GPU {gpu}: what serves it cannot be read from the installed libraries"))
        else:
            verdicts.append((True, f"GPU {gpu}: served"))
    return verdicts


def _installed() -> dict[str, importlib.metadata.Distribution]:
    """What Python finds; of two directories with the same distribution the first on the path counts."""
    found = [d for d in importlib.metadata.distributions() if d.metadata["Name"]]
    return {_normal(d.metadata["Name"]): d for d in reversed(found)}


def _present_gpus() -> list[str]:
    """GPU targets as the kernel driver tells them: major · 10000 + minor · 100 + stepping; processors have 0."""
    found = set()
    for node in sorted(_KFD.glob("*/properties")):
        match = re.search(r"^gfx_target_version (\d+)$", node.read_text("utf-8"), re.MULTILINE)
        if match and (number := int(match[1])):
            found.add(f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}")
    return sorted(found)


def _code_targets(distributions: Iterable[importlib.metadata.Distribution]) -> set[str]:
    """Targets that every library with readable device code serves; compressed code does not show any."""
    found = []
    for distribution in distributions:
        for file, size in _recorded(distribution):
            path = Path(str(distribution.locate_file(file)))
            if ".so" in path.name and size and path.is_file():
                with path.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    found.append({match.decode() for match in _TARGET.findall(data)})
    return set.intersection(*filter(None, found)) if any(found) else set()


def _without_hip(installed: Mapping[str, importlib.metadata.Distribution]) -> list[str]:
    """A torch that was built without ROCm imports and sees no GPU."""
    torch = installed.get("torch")
    version = Path(str(torch.locate_file("torch/version.py"))) if torch else None
    if version is None or not version.is_file():
        return []
    none = re.search(r"^hip\b[^=\n]*=\s*None", version.read_text("utf-8"), re.MULTILINE)
    return [f"torch {torch.version if torch else ''} was built without ROCm"] if none else []


def _base_elsewhere(installed: Mapping[str, importlib.metadata.Distribution]) -> list[str]:
    """Frameworks look for their ROCm base beside themselves: one directory has to hold both."""
    found = []
    for name, distribution in sorted(installed.items()):
        for line in distribution.requires or ():
            base = installed.get(_normal(re.split(r"[ =<>!~;\[(]", line)[0]))
            if base is None or not line.startswith(_BASE) or "extra ==" in line:
                continue
            here, there = (Path(str(d.locate_file(""))).resolve() for d in (distribution, base))
            if here != there:
                text = f"{name} lies in {here}, its base {base.metadata['Name']} in {there}"
                found.append(f"{text}: install both into one, with pip install --force-reinstall")
    return found


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
    expected = read_expected(Path(sys.argv[1]).read_text("utf-8"))
    found = problems(expected)
    lines = [*found, *(text for served, text in gpus(expected) if served)]
    print("\n".join(lines if found else [*lines, "the environment is as published"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
