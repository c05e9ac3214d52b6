"""Repairs of real wheels: time, memory and scratch space, beside auditwheel doing the same job, and beside cp.

Every figure is of a fresh process with a warm page cache. Our jobs: *analysed*, the needs of every ELF file read and
the wheel retagged; *retag*, to the tag that promises nothing, which needs no reading; *rpath*, analysed and the search
path of every ELF file with needs rewritten; *fat*, a library of 122 MB grafted. auditwheel's:
`repair --plat auto`, with `--exclude '*'` for all but fat, which analyses and retags and changes no ELF file.
"""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import shutil
import statistics
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rocm_wheels.console import print_table
from tests.bench.measure import Measured, run
from tests.bench.wheels import WHEELS, fetch

_BIG = 50 << 20
_BIN = Path(sys.executable).parent
_FAT = "llvm"
_LIBRARY = "librocmllvm.so"
JOBS = ("analysed", "retag", "rpath")


@dataclass(frozen=True)
class Row:
    """One job on one wheel, ours and auditwheel's; ``inflate`` is bare inflating of the ELF members, once."""

    wheel: str
    size: int
    job: str
    ours: Measured
    theirs: Measured
    cp: Measured
    inflate: Measured | None
    differences: tuple[str, ...]

    @property
    def factor(self) -> float:
        """How many times faster."""
        return self.theirs.wall / self.ours.wall


def main(argv: Sequence[str]) -> None:
    """Print the table and say which targets hold."""
    parser = argparse.ArgumentParser(prog="nox -s bench -- repair", description=__doc__)
    parser.add_argument("--wheel", action="append", choices=[*WHEELS, "fat"], help="measure this one (repeatable)")
    parser.add_argument("--scratch", type=Path, help="where to work; a few GB")
    parser.add_argument("--json", action="store_true", help="print the figures for machines")
    options = parser.parse_args(argv)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-bench-", dir=options.scratch) as folder:
        for name in options.wheel or (*WHEELS, "fat"):
            found = [_fat(Path(folder))] if name == "fat" else _measure(name, fetch(name), Path(folder))
            rows += found
            if not options.json:
                _print(found)
    targets = dict(_targets(rows))
    if options.json:
        print(json.dumps({"rows": [{**asdict(row), "factor": row.factor} for row in rows], "targets": targets}))
        return
    print_table(("target", "holds"), [(text, "yes" if holds else "no") for text, holds in targets.items()])


def _measure(name: str, wheel: Path, folder: Path) -> list[Row]:
    _warm(wheel)
    work = _Work(folder / name)
    cp = work.run("cp", "cp", wheel, work.result("cp"))
    inflate = work.run("inflate", *_job("inflate", wheel, work.result("inflate")))
    theirs = work.run("theirs", *_auditwheel(wheel, work.result("theirs"), "--exclude", "*"))
    rows = []
    for job in JOBS:
        ours = work.run(job, *_job(job, wheel, work.result(job)))
        compared = job == "analysed"  # the others do something else than auditwheel
        differences = tuple(_differences(work.wheel(job), work.wheel("theirs"))) if compared else ()
        rows.append(Row(name, wheel.stat().st_size, job, ours, theirs, cp, inflate, differences))
        work.clear(job)
    shutil.rmtree(work.folder)
    return rows


def _warm(wheel: Path) -> None:
    """Bring the file into the page cache, but not into this process: its children would be counted with that."""
    with wheel.open("rb") as file:
        while file.read(1 << 20):
            pass


def _fat(folder: Path) -> Row:
    """A wheel whose extension needs a library of 122 MB that lies outside."""
    from tests.wheel_fixtures import make_library, make_wheel

    with zipfile.ZipFile(fetch(_FAT)) as archive:
        member = next(n for n in archive.namelist() if posixpath.basename(n) == _LIBRARY)
        outside = Path(archive.extract(member, folder / "outside")).parent
    link = [f"-L{outside}", f"-l:{_LIBRARY}"]  # by name: the library has no SONAME, so a path would be needed by path
    extension = make_library(folder / "made", "_C.so", soname=None, options=link)
    wheel = make_wheel(folder / "in", "demo", files={"demo/_C.so": extension.read_bytes(), "demo/__init__.py": b""})
    work = _Work(folder / "fat", {"LD_LIBRARY_PATH": str(outside)})
    cp = work.run("cp", "cp", outside / _LIBRARY, work.result("cp"))
    theirs = work.run("theirs", *_auditwheel(wheel, work.result("theirs")))
    ours = work.run("ours", *_job("fat", wheel, work.result("ours"), str(outside)))
    return Row("fat", (outside / _LIBRARY).stat().st_size, "fat", ours, theirs, cp, None, ())


class _Work:
    """Directories of one wheel's jobs."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self._environment = {"PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}", **(environment or {})}

    def result(self, job: str) -> Path:
        return self.folder / job / "result"

    def wheel(self, job: str) -> Path:
        return next(self.result(job).glob("*.whl"))

    def run(self, job: str, *command: str | Path) -> Measured:
        return run(command, self.folder / job / "scratch", self.result(job), self._environment)

    def clear(self, job: str) -> None:
        shutil.rmtree(self.folder / job)


def _auditwheel(wheel: Path, dest: Path, *options: str) -> list[str | Path]:
    return [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", *options, "-w", dest, wheel]


def _job(job: str, wheel: Path, dest: Path, *more: str) -> list[str | Path]:
    return [sys.executable, "-m", "tests.bench.jobs", job, wheel, dest, *more]


def _differences(ours: Path, theirs: Path) -> Iterator[str]:
    """What another repair of the same wheel has otherwise, and why."""
    if ours.name != theirs.name:
        yield f"auditwheel's file name is {theirs.name}: old tags stay in it"
    with zipfile.ZipFile(ours) as a, zipfile.ZipFile(theirs) as b:
        mine = {e.filename: e.CRC for e in a.infolist()}
        other = {e.filename: e.CRC for e in b.infolist() if not e.is_dir()}
        if folders := len(b.infolist()) - len(other):
            yield f"auditwheel adds {folders} entries for directories, which the wheel format does not have"
        wheel, record = (next(n for n in mine if n.endswith(f".dist-info/{name}")) for name in ("WHEEL", "RECORD"))
        if (a_tags := _tags(a.read(wheel))) != (b_tags := _tags(b.read(wheel))):
            yield f"WHEEL has the tags {' '.join(a_tags)} here, {' '.join(b_tags)} with auditwheel"
        if b"\r\n" in b.read(record):
            yield "auditwheel's RECORD has CRLF line ends"
    for name in sorted(set(mine) ^ set(other)):
        yield f"only {'here' if name in mine else 'with auditwheel'}: {name}"
    for name in sorted(n for n in set(mine) & set(other) - {wheel, record} if mine[n] != other[n]):
        yield f"another content, which is wrong: {name}"


def _tags(wheel: bytes) -> list[str]:
    return sorted(line.removeprefix("Tag: ") for line in wheel.decode().splitlines() if line.startswith("Tag: "))


def _print(rows: Sequence[Row]) -> None:
    print_table(
        (
            "wheel",
            "MB",
            "job",
            "ours s",
            "MiB",
            "scratch",
            "auditwheel s",
            "MiB",
            "scratch",
            "times",
            "inflate s",
            "cp s",
        ),
        [
            (
                row.wheel,
                f"{row.size / 1e6:.0f}",
                row.job,
                f"{row.ours.wall:.2f}",
                row.ours.memory,
                row.ours.scratch,
                f"{row.theirs.wall:.1f}",
                row.theirs.memory,
                row.theirs.scratch,
                f"{row.factor:.1f}",
                f"{row.inflate.wall:.2f}" if row.inflate else "",
                f"{row.cp.wall:.2f}",
            )
            for row in rows
        ],
    )
    for row in rows:
        for line in row.differences:
            print(f"  {row.wheel}, {row.job}: {line}")


def _targets(rows: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    def of(job: str) -> list[Row]:
        return [row for row in rows if row.job == job and (row.size > _BIG or job == "fat")]

    for job, least, middle in (("analysed", 12, 25), ("rpath", 8, 15), ("retag", 60, 60), ("fat", 4, 4)):
        factors = [row.factor for row in of(job)]
        if factors:
            yield f"{job}: at least {least} times faster (worst {min(factors):.1f})", min(factors) >= least
            median = statistics.median(factors)
            yield f"{job}: at least {middle} times faster in the median ({median:.1f})", median >= middle
    shares = [row.ours.wall / row.inflate.wall for row in of("analysed") if row.inflate]
    if shares:
        yield f"analysed: within 1.3 times of inflating (worst {max(shares):.2f})", max(shares) <= 1.3
    most = max(row.ours.memory for row in rows)
    yield f"memory: at most 512 MiB (most {most})", most <= 512
