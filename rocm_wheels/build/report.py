"""What a build took, phase by phase, and a picture of its steps over time."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from rocm_wheels.build.compiler_cache import Calls
from rocm_wheels.build.ninja_log import Step, totals
from rocm_wheels.console import duration

_COLOURS = {"C++": "#4878a8", "HIP": "#c8553d", "link": "#6a994e", "other": "#999999"}
_WIDTH, _LANE = 1200, 14


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A finished stage: seconds by the clock of its last run; core-seconds and the largest process of all its runs."""

    stage: str
    seconds: float
    core_seconds: float
    largest_process: int
    compiler_cache: Mapping[str, Calls]

    @classmethod
    def read(cls, stage: str, usage: Path, seconds: float, calls: Mapping[str, Calls]) -> Self:
        """From the lines that :mod:`.measured` wrote to ``usage``; a run that was killed wrote none."""
        lines = usage.read_text("utf-8").splitlines() if usage.is_file() else []
        runs = [json.loads(line) for line in lines]
        return cls(
            stage=stage,
            seconds=round(seconds, 1),
            core_seconds=round(sum(run["core_seconds"] for run in runs), 1),
            largest_process=max((run["largest_process"] for run in runs), default=0),
            compiler_cache=calls,
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From a stamp."""
        found = json.loads(text)
        found.pop("fingerprint")
        calls = {language: Calls(**numbers) for language, numbers in found.pop("compiler_cache").items()}
        return cls(compiler_cache=calls, **found)

    def to_json(self, fingerprint: str) -> str:
        """The stamp of the stage in the tree of ``fingerprint``."""
        return json.dumps({**asdict(self), "fingerprint": fingerprint}, sort_keys=True) + "\n"

    def row(self) -> tuple[str, ...]:
        """What the report says of the phase."""
        cached = "; ".join(f"{language}: {calls}" for language, calls in self.compiler_cache.items())
        largest = f"{self.largest_process / 1e9:.2f} GB" if self.largest_process else ""
        return self.stage, duration(self.seconds), duration(self.core_seconds), largest, cached


HEADINGS = ("phase", "by the clock", "one core", "largest process", "compiler cache")


def render(title: str, phases: Iterable[Phase], steps: Sequence[Step]) -> str:
    """The report as one HTML file without any other: phases, steps by kind, and the timeline."""
    kinds = [(kind, f"{number}", duration(seconds)) for kind, (number, seconds) in totals(steps).items()]
    longest = sorted(steps, key=lambda step: -step.seconds)[:15]
    parts = (
        _table(HEADINGS, [phase.row() for phase in phases]),
        _table(("kind", "steps", "seconds of all steps together"), kinds),
        _timeline(steps),
        _table(("longest steps", ""), [(step.output, duration(step.seconds)) for step in longest]),
    )
    style = "body{font:14px sans-serif;margin:2em}td,th{text-align:left;padding:2px 12px}svg{overflow:visible}"
    name = html.escape(title)
    body = "\n".join(parts)
    return f'<!doctype html><meta charset="utf-8"><title>{name}</title><style>{style}</style><h1>{name}</h1>\n{body}\n'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(text)}" for text in headings)
    lines = ["<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows]
    return f"<table><tr>{head}\n" + "\n".join(lines) + "</table>"


def _timeline(steps: Sequence[Step]) -> str:
    """One lane per job, a bar per step; the pointer over a bar shows its name."""
    end = max((step.end for step in steps), default=1.0)
    free: list[float] = []
    bars = []
    for step in sorted(steps, key=lambda step: (step.start, step.end)):
        lane = next((n for n, time in enumerate(free) if time <= step.start + 0.05), len(free))
        free[lane:] = [step.end, *free[lane + 1 :]]
        place = f'x="{step.start / end * _WIDTH:.2f}" y="{lane * _LANE}" height="{_LANE - 2}"'
        width = max(0.2, step.seconds / end * _WIDTH)
        name = f"<title>{html.escape(step.output)} {step.seconds:.1f} s</title>"
        bars.append(f'<rect {place} width="{width:.2f}" fill="{_COLOURS[step.kind]}">{name}</rect>')
    key = " ".join(f'<span style="color:{colour}">■ {kind}</span>' for kind, colour in _COLOURS.items())
    return f'<p>{key}; {duration(end)}</p><svg width="{_WIDTH}" height="{len(free) * _LANE}">{"".join(bars)}</svg>'
