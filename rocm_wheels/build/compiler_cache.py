"""What ccache did in a stage, by language: read from the log that it writes per call (CCACHE_STATSLOG)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

# ccache's own counters, one line each below the name of the source file (ccache manual, "stats_log").
_HITS = {"direct_cache_hit", "preprocessed_cache_hit"}
_MISS = "cache_miss"
# Calls that compile nothing: linking, and FindHIP's search for dependencies (-M).
_NO_COMPILE = {"called_for_link", "called_for_preprocessing", "no_input_file", "unsupported_compiler_option"}
_LANGUAGES = {".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++", ".hip": "HIP", ".cu": "HIP", ".S": "assembler"}


@dataclass(frozen=True)
class Calls:
    """Compiles of one language: answered by the cache, put into it, and those that it cannot keep."""

    hits: int = 0
    misses: int = 0
    uncached: int = 0

    @property
    def rate(self) -> float:
        """Part of the compiles that the cache answered, 1.0 when there was none."""
        total = self.hits + self.misses + self.uncached
        return self.hits / total if total else 1.0

    def as_dict(self) -> dict[str, int]:
        """The numbers by name."""
        return asdict(self)

    def __str__(self) -> str:
        text = f"{self.hits} of {self.hits + self.misses + self.uncached} compiles hit ({self.rate:.0%})"
        return text + (f", {self.uncached} cannot be kept" if self.uncached else "")


def read_calls(log: Path) -> dict[str, Calls]:
    """The compiles in ``log`` by language, sorted; empty when ccache was never called."""
    if not log.is_file():
        return {}
    found: dict[str, Calls] = {}
    for block in log.read_text("utf-8", "replace").split("# ")[1:]:
        name, *counters = block.splitlines()
        language = _LANGUAGES.get(PurePosixPath(name).suffix, "other")
        if counted := _count(set(counters)):
            before = found.get(language, Calls())
            found[language] = Calls(*(a + b for a, b in zip(_values(before), _values(counted), strict=True)))
    return dict(sorted(found.items()))


def _count(counters: set[str]) -> Calls | None:
    """One call by what ccache counted for it; None when it compiled nothing."""
    if counters & _HITS:
        return Calls(hits=1)
    if _MISS in counters:
        return Calls(misses=1)
    return None if counters & _NO_COMPILE else Calls(uncached=1)


def _values(calls: Calls) -> tuple[int, int, int]:
    return calls.hits, calls.misses, calls.uncached
