"""Opens every library of a repaired wheel in a process of its own and compares what is mapped with the repair's plan.

Runs inside the builder image: ``python -m tests.loaded_as_planned MODE ARCHS BUILT REPAIRED PYTHON``. Prints one JSON
object: how many needs were compared, and those that came from elsewhere.
"""

from __future__ import annotations

import json
import posixpath
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rocm_wheels.gpu import parse_archs
from rocm_wheels.repair import MODES, RepairOptions, plan_repair
from rocm_wheels.repair.model import ElfPlan

# What the interpreter had loaded before, such as the libffi of ctypes, serves every later need of that name.
_LOAD = """
import ctypes, json, sys
def mapped():
    fields = (line.split(maxsplit=5) for line in open("/proc/self/maps"))
    return {f[5].strip() for f in fields if len(f) == 6}
before = mapped()
ctypes.CDLL(sys.argv[1])
print(json.dumps([sorted(before), sorted(mapped() - before)]))
"""


def main(mode: str, archs: str, built: str, repaired: str, python: str) -> None:
    """Compare and print."""
    options = RepairOptions(mode=next(m for m in MODES if m == mode), archs=parse_archs(archs))
    plan = plan_repair(Path(built), options)
    compared, wrong = 0, []
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(repaired).extractall(folder)
        for elf in plan.elves:
            if ".so" in posixpath.basename(elf.member):
                found = _elsewhere(elf, Path(folder), python)
                compared += len(elf.needs)
                wrong += found
    print(json.dumps({"compared": compared, "wrong": wrong}))


def _elsewhere(elf: ElfPlan, site: Path, python: str) -> list[str]:
    """Needs of ``elf`` that were not mapped from where the plan has them."""
    command = [python, "-I", "-c", _LOAD, str(site / elf.member)]
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"{elf.member}: {done.stderr.strip()[-200:]}"]
    before, mapped = json.loads(done.stdout)
    wrong = []
    for need in elf.needs:
        if any(posixpath.basename(path).startswith(need.name) for path in before):
            continue
        inside = need.provider in ("wheel", "graft")
        files = [path for path in mapped if posixpath.basename(path).startswith(need.name)]
        right = [f for f in files if (f == str(site / need.where) if inside else not f.startswith(f"{site}/"))]
        if len(files) != 1 or not right:
            wrong.append(f"{elf.member} needs {need.name}: {need.provider} {need.where}, mapped {files}")
    return wrong


if __name__ == "__main__":
    main(*sys.argv[1:])
