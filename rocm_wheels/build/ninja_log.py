"""What ninja says of its steps: the log of those that are done, and the list of those to come."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Descriptions as CMake's generator and FindHIP write them.
_DESCRIPTION = re.compile(r"^\[(?P<number>\d+)/(?P<total>\d+)\] (?P<text>.*)")


@dataclass(frozen=True)
class Step:
    """A finished step: seconds after the start of the first run that the log knows, and its first output."""

    start: float
    end: float
    output: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start

    @property
    def kind(self) -> str:
        """``HIP``, ``C++``, ``link`` or ``other``."""
        return kind_of(self.output)


def kind_of(text: str) -> str:
    """The kind of a step by its output or by the description that ninja prints of it."""
    if re.search(r"\.hip\.o\b|\bHIPCC object\b|\bHIP object\b", text):
        return "HIP"
    if re.search(r"\.(c|cc|cpp|cxx|S)\.o\b", text):
        return "C++"
    return "link" if re.search(r"\.(so|a)\b|^Linking ", text) else "other"


def read_log(path: Path) -> list[Step]:
    """The steps in ``.ninja_log`` (format 4 to 7) by their end; empty without a log.

    ninja appends, and each run counts its milliseconds from zero: a smaller end than the one before begins a run,
    which is laid after the last. A step that ran again counts as often as it ran, one with many outputs once.
    """
    if not path.is_file():
        return []
    steps: dict[tuple[int, int, int, str], Step] = {}
    run = offset = last = 0
    for line in path.read_text("utf-8", "replace").splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) != 5 or not (fields[0].isdigit() and fields[1].isdigit()):
            continue  # the last line of a killed run
        start, end = int(fields[0]), int(fields[1])
        if end < last:
            run, offset = run + 1, offset + last
        last = end
        steps.setdefault((run, start, end, fields[4]), Step((offset + start) / 1000, (offset + end) / 1000, fields[3]))
    return list(steps.values())


def totals(steps: Iterable[Step]) -> dict[str, tuple[int, float]]:
    """Number of steps and their seconds in all by kind."""
    count: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    for step in steps:
        count[step.kind] += 1
        seconds[step.kind] += step.seconds
    return {kind: (count[kind], seconds[kind]) for kind in sorted(count)}


class Counted:
    """Progress by ninja's own count, for builds of which nothing is known."""

    done = 0.0

    def finished(self, line: str) -> bool:
        """Take the count from ``line``; False when it has none."""
        if found := _DESCRIPTION.match(line):
            self.done = int(found["number"]) / max(1, int(found["total"]))
        return found is not None


class Remaining:
    """Steps still to do with the seconds that each is expected to take, for an estimate that knows what is left.

    A count alone misleads: PyTorch's last hundred steps are its longest. Seconds of one job; divide by what is
    actually done per second.
    """

    def __init__(self, pending: Iterable[str], means: dict[str, float]) -> None:
        self._means = means
        self._left: Counter[str] = Counter(kind_of(text) for text in map(description, pending) if text)
        self.total = self._seconds()
        self.steps = self._left.total()

    def finished(self, line: str) -> bool:
        """Count the step that ninja's ``line`` reports; False when it reports none."""
        text = description(line)
        if not text:
            return False
        kind = kind_of(text)
        if self._left[kind] > 0:
            self._left[kind] -= 1
        return True

    @property
    def done(self) -> float:
        """Part of the expected work that is behind us, 0 to 1."""
        return 1 - self._seconds() / self.total if self.total else 1.0

    def _seconds(self) -> float:
        return sum(number * self._means.get(kind, 0.1) for kind, number in self._left.items())


def description(line: str) -> str:
    """What ninja says of a step in ``line``, "" when the line is something else."""
    found = _DESCRIPTION.match(line)
    return found["text"] if found else ""
