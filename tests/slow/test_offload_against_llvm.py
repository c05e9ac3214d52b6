"""Every bundle of every ELF file with device code in the real wheels, as LLVM's own tools read it.

`clang-offload-bundler --list` is given each bundle that our reader cut out; `llvm-objdump --offloading` walks the
section by itself, where it can (LLVM 21 refuses some sections with compressed bundles). The tools are found on PATH;
Debian has them in clang-tools-21 and llvm-21.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rocm_wheels.elf import ElfFile, offload
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.inflate import Whole, inflate_each
from tests.bench.wheels import WHEELS, fetch
from tests.verify_docs import PAGE, part

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("clang-offload-bundler") and shutil.which("llvm-objdump")),
        reason="clang-offload-bundler or llvm-objdump is not installed",
    ),
]
WITH_CODE = ("bitsandbytes", "cupy", "cyllama", "jax60", "jax", "plugin", "tensorflow")
_EXTRACTED = re.compile(r"Extracting offload bundle: (\S+)\.(\d+)\.(\S+)")


def elves(wheel: Path, folder: Path) -> list[Path]:
    """The ELF files of the wheel that hold device code, written to ``folder``."""
    found = []
    with WheelArchive.open(wheel) as archive:

        def visit(inflated: object) -> None:
            member, data = inflated.member, inflated.data  # type: ignore[attr-defined]
            if data:
                elf = ElfFile.parse(data, member.name)
                if offload.read_bundles(elf) or offload.embedded_bundles(elf):
                    path = folder / member.name.replace("/", "__")
                    path.write_bytes(data)
                    found.append(path)

        files = [m for m in archive.members if not m.is_directory]
        for _ in inflate_each(archive, files, visit, sink=lambda m, h: Whole(m.size) if h[:4] == b"\x7fELF" else None):
            pass
    return sorted(found)


def listed(elf: ElfFile, bundle: offload.Bundle, folder: Path) -> list[str]:
    """Targets of one bundle by clang-offload-bundler."""
    section = elf.section(bundle.section)
    assert section is not None
    file = folder / "bundle"
    file.write_bytes(elf.bytes_at(section.offset + bundle.offset, bundle.size))
    command = ["clang-offload-bundler", "--list", "--type=o", f"--input={file}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def extracted(path: Path) -> list[tuple[int, str, int]] | None:
    """Bundle, target and size of every code object by llvm-objdump; None when it gives up on the file."""
    done = subprocess.run(["llvm-objdump", "--offloading", str(path)], capture_output=True, text=True, check=False)
    found = []
    for match in _EXTRACTED.finditer(done.stdout):
        file = Path(f"{match[1]}.{match[2]}.{match[3]}")
        if file.exists() and file.stat().st_size:  # of an entry of size zero an empty file or none is written
            found.append((int(match[2]), match[3], file.stat().st_size))
        file.unlink(missing_ok=True)
    return found if done.returncode == 0 else None


def shape(elf: ElfFile) -> list[tuple[int, str, int]]:
    """The same by our reader."""
    bundles = offload.read_bundles(elf)
    return [(n, e.target, e.size) for n, bundle in enumerate(bundles) for e in bundle.entries if e.size]


@pytest.mark.parametrize("name", WITH_CODE)
def test_llvm_reads_the_same_code_objects(name: str, tmp_path: Path) -> None:
    lines = []
    for path in elves(fetch(name), tmp_path):
        elf = ElfFile.parse(path.read_bytes(), path.name)
        bundles = (*offload.read_bundles(elf), *offload.embedded_bundles(elf))
        for bundle in bundles:
            assert sorted(listed(elf, bundle, tmp_path)) == sorted(e.target for e in bundle.entries)
            assert all(e.is_true for e in bundle.entries)
        walked = extracted(path)
        if walked is not None:
            assert sorted(walked) == sorted(shape(elf))
        embedded = sum(b.section == offload.EMBEDDED for b in bundles)
        objects = sum(bool(e.size and e.arch) for b in bundles for e in b.entries)
        told = "agrees" if walked is not None else "gives up"
        member = path.name.replace("__", "/")
        cells = (WHEELS[name].file.partition("-")[0], member, len(bundles) - embedded, embedded, objects, told)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
        path.unlink()
    if out := os.environ.get("OFFLOAD_TABLE"):
        with Path(out).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    assert lines
    assert all(line in part(PAGE.read_text("utf-8"), "llvm") for line in lines)
