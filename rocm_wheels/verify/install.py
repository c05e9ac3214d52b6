"""Install the wheel as users do, import it under a time limit, look at what the process then holds, run kernels.

Two fresh environments: pip into one with a symlinked interpreter, uv into one with a copied interpreter. Wheels of the
verified set that it pins are installed along; nothing comes from an index.
"""

from __future__ import annotations

import json
import os
import posixpath
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path

from rocm_wheels.repair.providers import is_rocm, stem
from rocm_wheels.verify import gpu_probe
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.checks.names import HASHED
from rocm_wheels.verify.load import load_all
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject

_ENVIRONMENTS = (("pip", False), ("uv", True))
_KFD = Path("/dev/kfd")
_GPU_SECONDS = 600

# Imports what it is told and prints the files that the process holds then.
_IMPORT = """
import faulthandler, importlib, json, sys
faulthandler.enable()
faulthandler.dump_traceback_later(int(sys.argv[1]), exit=True)
for package in sys.argv[2:]:
    importlib.import_module(package)
with open("/proc/self/maps", encoding="utf-8") as maps:
    print(json.dumps(sorted({line.split(None, 5)[5].strip() for line in maps if ".so" in line})))
"""


def install_and_load(subject: Subject, python: str) -> tuple[list[Finding], list[str]]:
    """Findings of both environments, and what was left out and why."""
    found: list[Finding] = []
    skipped: list[str] = []
    for tool, copies in _ENVIRONMENTS:
        with tempfile.TemporaryDirectory(prefix="rocm-wheels-verify-") as folder:
            environment = Path(folder).resolve() / "venv"
            problem = _install(python, environment, subject, tool, copies=copies)
            if problem:
                found.append(finding("install", subject.name, f"{tool}: {problem}"))
                continue
            interpreter = str(environment / "bin" / "python")
            site = Path(_output([interpreter, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]))
            found += _overlap(subject, site)
            missing = _missing_requirements(subject)
            if missing:
                skipped.append(f"import: what it requires is not in the set ({', '.join(missing)})")
            else:
                found += _import(subject, interpreter)
            if tool == "pip":
                found += load_all(subject, interpreter, site)
                more, left_out = _gpu(subject, interpreter)
                found += more
                skipped += left_out
    return found, skipped


def _install(python: str, environment: Path, subject: Subject, tool: str, *, copies: bool) -> str:
    """Why the installation failed, or ""."""
    target = str(environment / "bin" / "python")
    wheels = [str(s.archive.path.resolve()) for s in (*subject.companions, subject)]
    make = [sys.executable, "-m", "virtualenv", "--quiet", "--python", python, str(environment)]
    pip = [target, "-m", "pip"] if tool == "pip" else [sys.executable, "-m", "uv", "pip"]
    where = [] if tool == "pip" else ["--python", target]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", *where, *wheels]
    for command in ([*make, "--copies"] if copies else make, install):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip() or done.stdout.strip())[-400:]
    return ""


def _missing_requirements(subject: Subject) -> list[str]:
    """Distributions that the wheel requires without condition and the set does not have."""
    there = {s.archive.distribution for s in subject.companions}
    wanted = (r for r in subject.requirements if r.marker is None or "extra" not in str(r.marker))
    return sorted({r.name for r in wanted if r.name.lower().replace("_", "-") not in there})


def _overlap(subject: Subject, site: Path) -> Iterator[Finding]:
    """Files that two installed distributions claim, by their RECORDs."""
    owners: dict[str, set[str]] = defaultdict(set)
    for distribution in distributions(path=[str(site)]):
        for entry in distribution.files or ():
            owners[str(entry)].add(distribution.metadata["Name"])
    mine = subject.archive.distribution
    for file, names in sorted(owners.items()):
        if len(names) > 1 and mine in {n.lower().replace("_", "-").replace(".", "-") for n in names}:
            yield finding("overlap", file, f"is of {' and '.join(sorted(names))}")
            return


def _import(subject: Subject, interpreter: str) -> Iterator[Finding]:
    packages = _packages(subject)
    if not packages:
        return
    seconds = subject.options.import_seconds
    command = [interpreter, "-I", "-c", _IMPORT, str(seconds), *packages]
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip()
        late = f"not imported after {seconds} seconds, the stack was: " if "Timeout (" in said else ""
        yield finding("import", " ".join(packages), late + (said[-800:] or f"the process ended with {done.returncode}"))
        return
    yield from _duplicates(json.loads(done.stdout.splitlines()[-1]))


def _duplicates(files: Sequence[str]) -> Iterator[Finding]:
    """Libraries of ROCm that the process has from two files: by name, without version and hash."""
    places: dict[str, set[str]] = defaultdict(set)
    for file in files:
        base = posixpath.basename(file)
        plain = HASHED.sub(r"\1\2", base)
        if is_rocm(plain):
            places[stem(plain)].add(file)
    for library, paths in sorted(places.items()):
        if len(paths) > 1:
            yield finding("duplicate-library", library, f"the process has {' and '.join(sorted(paths))}")


def _packages(subject: Subject) -> list[str]:
    """Top-level packages of the wheel that have an ``__init__.py``."""
    return sorted({n.partition("/")[0] for n in subject.content if n.count("/") == 1 and n.endswith("/__init__.py")})


def _gpu(subject: Subject, interpreter: str) -> tuple[list[Finding], list[str]]:
    """Kernels on the GPU of this machine, for wheels that have PyTorch's interface."""
    if subject.archive.distribution != "torch":
        return [], [f"gpu: no kernel was run, there is no probe for {subject.archive.distribution}"]
    if not _KFD.exists():
        return [], ["gpu: no kernel was run, this machine has no AMD GPU (/dev/kfd)"]
    return gpu_findings(interpreter, "cuda"), []


def gpu_findings(interpreter: str, device: str) -> list[Finding]:
    """What the probe says in an environment that has torch; ``device`` is what torch calls it."""
    command = [interpreter, str(Path(gpu_probe.__file__)), device]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_GPU_SECONDS
        )
    except subprocess.TimeoutExpired:
        return [finding("gpu-compute", device, f"no answer after {_GPU_SECONDS} seconds")]
    if done.returncode:
        return [finding("gpu-compute", device, done.stderr.strip()[-800:])]
    answers = json.loads(done.stdout.splitlines()[-1])
    return [finding(check, what, evidence) for check, what, evidence in answers]


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.strip()
