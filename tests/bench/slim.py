"""Slim wheels out of real ones: bytes before and after, and time beside copying the same wheel member by member.

Every figure is of a fresh process with a warm page cache. *download* is the wheel, *device code* what the code objects
take when installed; *copy* writes the same wheel anew with every member's compressed bytes as they were.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rocm_wheels.console import Console, print_table
from tests.bench.measure import Measured, run
from tests.bench.wheels import fetch

GPUS = {
    "jax": "gfx1030",
    "jax60": "gfx1030",
    "cupy": "gfx1030",
    "tensorflow": "gfx1030",
    "bitsandbytes": "gfx1030",
    "cyllama": "gfx1100",
}


@dataclass(frozen=True)
class Row:
    """One wheel: MB of the wheel and of its device code, before and after, and what slim and copy took."""

    wheel: str
    arch: str
    archs: int
    download: tuple[float, float]
    device: tuple[float, float]
    slim: Measured
    copy: Measured


def main(argv: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="nox -s bench -- slim", description=__doc__)
    parser.add_argument("--wheel", action="append", choices=sorted(GPUS), help="measure this one (repeatable)")
    parser.add_argument("--scratch", type=Path, help="where to work; a few GB")
    parser.add_argument("--json", action="store_true", help="print the figures for machines")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-bench-", dir=options.scratch) as folder:
        rows = [_measure(name, fetch(name), Path(folder) / name) for name in options.wheel or GPUS]
    if options.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print_table(
        ("wheel", "for", "GPUs", "download MB", "device code MB", "slim s", "MiB", "scratch", "copy s", "times"),
        [
            (
                row.wheel,
                row.arch,
                row.archs,
                _change(row.download),
                _change(row.device),
                f"{row.slim.wall:.1f}",
                row.slim.memory,
                row.slim.scratch,
                f"{row.copy.wall:.1f}",
                f"{row.slim.wall / row.copy.wall:.1f}",
            )
            for row in rows
        ],
    )


def _change(sizes: tuple[float, float]) -> str:
    before, after = sizes
    return f"{before:.0f} → {after:.0f} (-{100 * (1 - after / before):.0f} %)"


def _measure(name: str, wheel: Path, folder: Path) -> Row:
    wheel.read_bytes()  # warm
    took = {
        job: run(
            [sys.executable, "-m", "tests.bench.slim", job, wheel, folder / job / "result", GPUS[name]],
            folder / job / "scratch",
            folder / job / "result",
            dict(os.environ),
        )
        for job in ("copy", "slim")
    }
    plan = json.loads((folder / "slim" / "result" / "plan.json").read_text("utf-8"))
    (slim,) = (folder / "slim" / "result").glob("*.whl")
    kept = sum(each["kept_size"] for each in plan["libraries"])
    removed = sum(each["removed_size"] for each in plan["libraries"])
    return Row(
        wheel=wheel.name.partition("-")[0],
        arch=GPUS[name],
        archs=len({arch for each in plan["libraries"] for arch in (*each["kept"], *each["removed"])}),
        download=(wheel.stat().st_size / 1e6, slim.stat().st_size / 1e6),
        device=((kept + removed) / 1e6, kept / 1e6),
        slim=took["slim"],
        copy=took["copy"],
    )


def _job(job: str, wheel: Path, dest: Path, arch: str) -> None:
    from rocm_wheels.slim import slim
    from rocm_wheels.wheel import WheelArchive, WheelWriter

    if job == "slim":
        plan = slim(wheel, [arch], dest, Console(quiet=True))
        (dest / "plan.json").write_text(json.dumps(plan.as_dict()), "utf-8")
        return
    with WheelArchive.open(wheel) as archive, WheelWriter(dest / wheel.name) as writer:
        rows = {row.path: row for row in archive.record}
        for member in archive.members:
            if not member.is_directory and not member.name.endswith(".dist-info/RECORD"):
                writer.copy(archive, member, rows[member.name])


if __name__ == "__main__":
    _job(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
