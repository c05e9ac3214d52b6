"""Where a program's GPU time goes: ROCm's own profiler, its output as a table and a picture.

No profiler was ever run here, which needs a GPU. What is read are the CSV files that rocprofv3 (ROCprofiler-SDK) and
rocprof (v1) write, in the formats that AMD documents:
https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html and
https://rocm.docs.amd.com/projects/rocprofiler/en/latest/how-to/using-rocprof.html.
"""

from __future__ import annotations

import csv
import html as markup
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.errors import ProfilerFailed, ProfilerMissing

_NAMES = ("rocprofv3", "rocprof")
# Columns of a dispatch: (name, begin, end) of rocprofv3's kernel trace and of rocprof's results.
_TRACES = (("Kernel_Name", "Start_Timestamp", "End_Timestamp"), ("KernelName", "BeginNs", "EndNs"))
_STATS = ("Name", "Calls", "TotalDurationNs")
# Statistics of API calls have the same columns and lie beside those of kernels.
_KERNEL_STATS = re.compile(r"(?:^|_)kernel_stats\.csv$|^[^.]*\.stats\.csv$")


@dataclass(frozen=True)
class Kernel:
    """All dispatches of one kernel: how many, and the time that they took together."""

    name: str
    calls: int
    total_ns: int

    @property
    def average_us(self) -> float:
        """Mean time of a dispatch in microseconds."""
        return self.total_ns / self.calls / 1000


@dataclass(frozen=True)
class Profile:
    """Kernels, the most expensive first, and, if a trace was read, each dispatch as (kernel, begin, end) in ns."""

    kernels: tuple[Kernel, ...]
    dispatches: tuple[tuple[str, int, int], ...] = ()

    @property
    def total_ns(self) -> int:
        """Time in kernels; more than the elapsed time where they overlap."""
        return sum(kernel.total_ns for kernel in self.kernels)


def find_profiler(path: str | None = None) -> Path:
    """The newest profiler on PATH or below ROCM_PATH; raises :class:`ProfilerMissing`."""
    rocm = Path(os.environ.get("ROCM_PATH") or "/opt/rocm") / "bin"
    places = os.pathsep.join([os.environ.get("PATH", "") if path is None else path, str(rocm)])
    for name in _NAMES:
        if found := shutil.which(name, path=places):
            return Path(found)
    raise ProfilerMissing(
        f"neither {' nor '.join(_NAMES)} is on PATH or in {rocm}",
        remedy="install rocprofiler-sdk from AMD's repository (Debian has neither profiler); a wheel cannot bring it",
    )


def command(profiler: Path, script: Sequence[str], folder: Path) -> list[str]:
    """The command that runs ``script`` under ``profiler``, its output below ``folder``."""
    program = [sys.executable, *script] if script[0].endswith(".py") else list(script)
    if profiler.name == "rocprofv3":
        options = ["--kernel-trace", "--stats", "--output-format", "csv", "--output-directory", str(folder), "--"]
    else:
        options = ["--stats", "-o", str(folder / "results.csv")]
    return [str(profiler), *options, *program]


def run_profiler(profiler: Path, script: Sequence[str], folder: Path) -> Profile:
    """Run ``script`` under ``profiler`` and read what it wrote; raises :class:`ProfilerFailed`."""
    folder.mkdir(parents=True, exist_ok=True)
    words = command(profiler, script, folder)
    code = subprocess.run(words, check=False).returncode
    if code:
        raise ProfilerFailed(
            f"`{' '.join(words)}` ended with {code}",
            remedy="its own words stand above; without a usable GPU there is nothing to profile (`invoke gpu`)",
        )
    return read_profile(folder)


def read_profile(folder: Path) -> Profile:
    """The CSV files below ``folder``, or one such file; a trace counts before statistics made from it.

    Raises :class:`ProfilerFailed` when none of them is one.
    """
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.csv"))
    tables = [(file, _rows(file)) for file in files]
    dispatches = tuple(d for _, rows in tables for d in _dispatches(rows))
    if dispatches:
        return Profile(_summed((name, 1, end - begin) for name, begin, end in dispatches), dispatches)
    stats = [row for file, rows in tables if _KERNEL_STATS.search(file.name) for row in rows]
    stats = [row for row in stats if all(row.get(column) for column in _STATS)]
    if not stats:
        raise ProfilerFailed(
            f"no CSV below {folder} is a kernel trace or kernel statistics of rocprofv3 or rocprof",
            remedy="rocprofv3 needs --kernel-trace --output-format csv; a run without kernels leaves none",
        )
    return Profile(_summed((_name(row["Name"]), _whole(row["Calls"]), _whole(row["TotalDurationNs"])) for row in stats))


def _name(text: str) -> str:
    """A kernel's name without what the loader adds to it."""
    return re.sub(r"(?: \[clone \.kd\]|\.kd)$", "", text)


def _whole(text: str) -> int:
    """A number that may be written as ``5.17e+08``."""
    return round(float(text)) if re.search("[.eE]", text) else int(text)


def _rows(file: Path) -> list[Mapping[str, str]]:
    with file.open(encoding="utf-8", errors="replace", newline="") as stream:
        return list(csv.DictReader(stream))


def _dispatches(rows: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, int, int]]:
    for columns in _TRACES:
        for row in rows:
            if all(row.get(column) for column in columns):
                name, begin, end = (row[column] for column in columns)
                yield _name(name), int(begin), int(end)


def _summed(parts: Iterable[tuple[str, int, int]]) -> tuple[Kernel, ...]:
    calls: dict[str, int] = {}
    times: dict[str, int] = {}
    for name, count, time in parts:
        calls[name] = calls.get(name, 0) + count
        times[name] = times.get(name, 0) + time
    found = (Kernel(name, calls[name], times[name]) for name in calls)
    return tuple(sorted(found, key=lambda kernel: (-kernel.total_ns, kernel.name)))


# --- the picture ------------------------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px sans-serif; margin: 2em; max-width: 70em }} td, th {{ text-align: right; padding: 2px 10px }}
td:first-child, th:first-child {{ text-align: left; font-family: monospace; word-break: break-all }}
.bar {{ fill: #c33 }} text {{ font: 11px monospace }}
</style></head><body><h1>{title}</h1>
<p>{count} kernels, {calls} dispatches, {total:.3f} ms in kernels{span}</p>
{timeline}
<table><tr><th>kernel</th><th>calls</th><th>total ms</th><th>average µs</th><th>share</th><th></th></tr>
{rows}
</table></body></html>
"""
_WIDTH, _LANES = 1000, 12


def html(profile: Profile, title: str) -> str:
    """A page without scripts or addresses: the kernels by time and, from a trace, when each of them ran."""
    rows = "\n".join(_row(kernel, profile.total_ns) for kernel in profile.kernels)
    return _PAGE.format(
        title=markup.escape(title),
        count=len(profile.kernels),
        calls=sum(kernel.calls for kernel in profile.kernels),
        total=profile.total_ns / 1e6,
        span=f" of {_span(profile)[1] / 1e6:.3f} ms" if profile.dispatches else "",
        timeline=_timeline(profile),
        rows=rows,
    )


def _row(kernel: Kernel, total: int) -> str:
    share = kernel.total_ns / total if total else 0.0
    bar = f'<svg width="200" height="10"><rect class="bar" width="{200 * share:.1f}" height="10"/></svg>'
    cells = (kernel.calls, f"{kernel.total_ns / 1e6:.3f}", f"{kernel.average_us:.1f}", f"{share:.1%}", bar)
    return f"<tr><td>{markup.escape(kernel.name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _span(profile: Profile) -> tuple[int, int]:
    begin = min(begin for _, begin, _ in profile.dispatches)
    return begin, max(1, max(end for *_, end in profile.dispatches) - begin)


def _timeline(profile: Profile) -> str:
    """A lane for each of the most expensive kernels; dispatches that share a pixel are drawn once."""
    if not profile.dispatches:
        return ""
    first, span = _span(profile)
    lanes = {kernel.name: n for n, kernel in enumerate(profile.kernels[:_LANES])}
    drawn = set()
    for name, begin, end in profile.dispatches:
        if name in lanes:
            left = (begin - first) * _WIDTH // span
            drawn.add((lanes[name], left, max(1, (end - first) * _WIDTH // span - left)))
    bars = "".join(f'<rect class="bar" x="{x}" y="{20 * n + 14}" width="{w}" height="5"/>' for n, x, w in sorted(drawn))
    names = "".join(f'<text x="0" y="{20 * n + 11}">{markup.escape(name[:140])}</text>' for name, n in lanes.items())
    return f'<svg width="{_WIDTH}" height="{20 * len(lanes)}">{names}{bars}</svg>'
