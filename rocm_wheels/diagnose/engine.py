"""Find the first real error of a log and the known faults in it.

A log's last line is hardly ever its cause: ninja, make, setuptools and pip each report that something below them
failed. Noise is left out first (what CI systems put before lines, colours, the echo of commands, probes of CMake that
are meant to fail), then the first line that reports an error is the first real one, and faults of the catalogue are
looked for in all that is left.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from rocm_wheels.diagnose.catalogue import Fault, load_catalogue
from rocm_wheels.errors import LogUnreadable

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
# GitHub's and GitLab's time stamps, BuildKit's `#7 12.3 `, docker compose's `name | `.
_PREFIX = re.compile(r"^(?:\d{4}-\d\d-\d\dT[\d:.]+Z (?:\d\d[OE] ?)?|#\d+ (?:\d+\.\d+ )?|[\w.-]+ +\| )")
_PROGRESS = re.compile(r"^\s*(?:\[\d+/\d+\]|\[\s*\d+%\]) (?!FAILED)")  # ninja, make
_CMAKE_WARNING = re.compile(r"^CMake (?:\w+ )?Warning\b")
# Lines that say "error" and are none: echoed commands, compiler flags, file names, CMake's probes, tests that passed.
_NOISE = re.compile(
    r"""
      ^\s*(?:\$|\+)\ \S                                      # an echoed command
    | ^\s*(?:/\S*/)?(?:g?cc|g\+\+|c\+\+|clang(?:\+\+)?|hipcc|ccache)\ .*\s-[coDI]   # the same, of a compiler
    | ^--\                                                   # CMake's own progress; its errors begin otherwise
    | ^\s*(?:adding|creating|copying|writing|running|reading|Requirement\ already|Collecting|Downloading)\ ['\w/.]
    | \b0\ errors?\b | \berrors?\ ?[:=]\ 0\b | \bno\ errors?\b
    | \bwarning:                                             # a warning about an error is a warning
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ERROR = re.compile(
    r"""
      (?:^|[\s:])(?:[Ff]atal\ )?[Ee]rror(?:\[\w+\])?:\s            # compilers, linkers, git, apt, rustc
    | ^\s*(?:E|ERROR|FATAL|CRITICAL)\b[:\ ]                  # apt, pip, loggers
    | ^\s*fatal:\s                                           # git
    | ^\s*CMake\ Error
    | ^\s*(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|NotFound|Refused)\b(?::|$)  # Python's last line
    | \#error\b
    | :\ (?:undefined\ reference|multiple\ definition|cannot\ find\ -l)
    | \b(?:cannot|could\ not|couldn't|unable\ to|failed\ to)\ \w+
    | \b(?:Permission\ denied|No\ such\ file\ or\ directory|No\ space\ left|Segmentation\ fault|Aborted|Killed)\b
    | ^\S*\bld(?:\.\w+)?:\s(?!.*:\ in\ function) | \brelocation\ truncated
    | \b(?:not\ found|undefined\ symbol|Out\ of\ memory|core\ dumped|panicked\ at|assertion\ .*failed)\b
    | \*\*\*\ .*(?:Stop|Error\ \d)
    | ^\s*FAILED:?\s
    | \bpatch\ failed\b | \bHunk\ \#\d+\ FAILED\b
    | (?:^|\s)error\ +in\ | \berror\ code\b | \bexit(?:ed)?\ (?:code|status|with)\D{0,12}[1-9]
    """,
    re.VERBOSE,
)
# What reports that something else failed; it is the first real error only when nothing else is.
_CONSEQUENCE = re.compile(
    r"""
      ^\s*FAILED:?\s | \*\*\*\ .*(?:Stop|Error\ \d) | ninja:\ build\ stopped | subcommand\ failed
    | CalledProcessError | returned\ non-zero\ exit | exit(?:ed)?\ (?:code|status|with) | error\ code:
    | subprocess-exited-with-error | did\ not\ run\ successfully | Failed\ (?:building|to\ build)
    | (?:metadata-generation|Encountered\ error) | process\ "/bin/sh
    | ERROR:\ (?:Job\ failed|failed\ to\ (?:solve|build))
    | Error\ compiling\ objects | ^\s*error:\ command\ | linker\ command\ failed | ld\ returned\ \d
    | compilation\ terminated | Configuring\ incomplete | See\ also\ "
    | ^\s*Traceback
    """,
    re.VERBOSE,
)
_TRACEBACK = re.compile(r"^(\s*)(?:\S*\s*\|\s*)?Traceback \(most recent call last\)")
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")  # gcc's in a UTF-8 locale
_NEAR = 6  # lines that belong to one error: a wrapped message, the code that it quotes
_LINE_LIMIT = 4000
_HEAD = 500  # where a line says that it is an error


@dataclass(frozen=True)
class Finding:
    """A known fault, the number (from 1) of the line that shows it, and the line's text.

    It ``stops`` its step unless the catalogue says otherwise or CMake reported it as a warning.
    """

    fault: Fault
    stops: bool
    line: int
    text: str
    cause: str
    remedy: str

    def as_dict(self) -> dict[str, object]:
        """The finding as ``--json`` prints it."""
        return {
            "id": self.fault.id,
            "stage": self.fault.stage,
            "title": self.fault.title,
            "stops": self.stops,
            "line": self.line,
            "text": self.text,
            "cause": self.cause,
            "remedy": self.remedy,
            "releases": self.fault.releases,
            "links": list(self.fault.links),
        }


@dataclass(frozen=True)
class Diagnosis:
    """What a log shows.

    ``findings`` are the known faults: first those that stop a step, in the order of the log, then those that only
    spoil its result. ``line`` is the number (from 1) of the first real error, 0 when no line reports one; ``excerpt``
    is that line with what stands around it, or the end of the log.
    """

    findings: tuple[Finding, ...]
    line: int
    excerpt: str

    @property
    def known(self) -> bool:
        """Whether the catalogue explains the log: by a fault that stops a step, or by another where nothing failed."""
        stopped = any(finding.stops for finding in self.findings)
        told = [finding for finding in self.findings if not finding.fault.stops]  # its own line may read like an error
        return stopped or (bool(self.findings) and not self.line) or self._near(told)

    @property
    def earlier_error(self) -> bool:
        """Whether an error that no fault explains comes well before the first known fault."""
        return self.known and self.line > 0 and not self._near(self.findings) and self.line < self.findings[0].line

    def _near(self, findings: Iterable[Finding]) -> bool:
        return any(abs(self.line - finding.line) <= _NEAR for finding in findings)

    def as_dict(self) -> dict[str, object]:
        """The diagnosis as ``--json`` prints it."""
        return {
            "known": self.known,
            "first_error": {"line": self.line, "excerpt": self.excerpt},
            "findings": [finding.as_dict() for finding in self.findings],
        }


def find_logs(pattern: str) -> tuple[Path, ...]:
    """The logs that ``pattern`` means: a file, a directory's ``*.log``, or a glob; raises :class:`LogUnreadable`."""
    path = Path(pattern).expanduser()
    if path.is_dir():
        found = sorted(path.glob("*.log"))
    else:
        found = [path] if path.exists() else sorted(map(Path, glob(str(path))))  # noqa: PTH207  may be absolute
    if not found:
        raise LogUnreadable(
            f"no log is at {pattern}", remedy="a build tree has its logs in logs/ (`invoke config`: cache_dir)"
        )
    return tuple(found)


def diagnose_log(path: Path) -> Diagnosis:
    """Diagnose the log in ``path``; raises :class:`LogUnreadable`."""
    try:
        return diagnose_text(path.read_text("utf-8", "replace"))
    except OSError as error:
        raise LogUnreadable(f"{path} cannot be read: {error.strerror}") from error


def diagnose_text(log: str, catalogue: Sequence[Fault] | None = None) -> Diagnosis:
    """Diagnose ``log`` by ``catalogue``, the whole one when none is given."""
    lines = clean(log)
    warned = _warning_lines(lines)
    findings = _find(lines, load_catalogue() if catalogue is None else catalogue, warned)
    first = _first_error_line(lines, warned)
    for finding in findings[:1]:
        if finding.stops and (first is None or finding.line - 1 < first):
            first = finding.line - 1
    return Diagnosis(findings, 0 if first is None else first + 1, _excerpt(lines, first))


def first_error(log: str) -> str:
    """The first line of ``log`` that reports an error, with what stands around it; else its last lines."""
    return diagnose_text(log).excerpt


def clean(log: str) -> list[str]:
    """The lines of ``log`` without colours, carriage returns, typographic quotes and the prefixes of CI systems."""
    text = _CONTROL.sub("", log.replace("\r\n", "\n")).translate(_QUOTES)
    return [_PREFIX.sub("", line.rsplit("\r", 1)[-1]).rstrip()[:_LINE_LIMIT] for line in text.split("\n")]


def _find(lines: Sequence[str], catalogue: Iterable[Fault], warned: set[int]) -> tuple[Finding, ...]:
    """One finding per fault, in the order of :class:`Diagnosis`, general ones last."""
    quoted = _traceback_lines(lines)  # a traceback quotes the source, the words of an error among it
    numbers = [n for n, line in enumerate(lines) if line.strip() and n not in quoted and not _PROGRESS.match(line)]
    words = [" ".join(lines[n].split()) for n in numbers]
    starts = [0, *itertools.accumulate(len(text) + 1 for text in words)]
    whole = " ".join(words)
    found = []
    for fault in catalogue:
        matches = []  # (whether it is only a warning, where it starts, the match)
        for pattern in fault.patterns:
            for match in pattern.finditer(whole):
                index = bisect.bisect_right(starts, match.start()) - 1
                matches.append((numbers[index] in warned, index, match))
                if numbers[index] not in warned:
                    break
        if matches:
            warning, index, match = min(matches, key=lambda m: m[:2])
            groups = {name: value or "" for name, value in match.groupdict().items()}
            cause, remedy = (_fill(text, groups) for text in (fault.cause, fault.remedy))
            stops = fault.stops and not warning
            found.append(Finding(fault, stops, numbers[index] + 1, words[index], cause, remedy))
    found.sort(key=lambda f: (not f.stops, f.line, f.fault.general))
    exact = [finding.line for finding in found if not finding.fault.general]
    return tuple(f for f in found if not f.fault.general or not any(abs(f.line - line) <= _NEAR for line in exact))


def _fill(text: str, groups: dict[str, str]) -> str:
    """``text`` with ``{name}`` replaced; what an empty one leaves behind goes too."""
    return re.sub(r"\{(\w+)\}", lambda match: groups.get(match[1], match[0]), text).replace(" ()", "")


def _first_error_line(lines: Sequence[str], warned: set[int]) -> int | None:
    """Index of the first real error; of the first consequence when there is nothing else; None for no error."""
    consequence = None
    for number in _candidates(lines):
        if number in warned:
            continue
        if not _CONSEQUENCE.search(lines[number]):
            return number
        consequence = number if consequence is None else consequence
    return consequence


def _candidates(lines: Sequence[str]) -> Iterator[int]:
    """Indexes of lines that report an error; a traceback counts by the exception that ends it."""
    number = 0
    while number < len(lines):
        line = lines[number][:_HEAD]
        if trace := _TRACEBACK.match(line):
            end = _end_of_traceback(lines, number, trace[1])
            yield end
            number = end
        elif not _PROGRESS.match(line) and _ERROR.search(line) and not _NOISE.search(line):
            yield number
        number += 1


def _warning_lines(lines: Sequence[str]) -> set[int]:
    """Indexes of the lines of CMake's warnings, which go on until a line that is not indented."""
    inside: set[int] = set()
    for number, line in enumerate(lines):
        if _CMAKE_WARNING.match(line):
            inside.add(number)
            for following in range(number + 1, len(lines)):
                if lines[following][:1].strip():
                    break
                inside.add(following)
    return inside


def _traceback_lines(lines: Sequence[str]) -> set[int]:
    """Indexes of all lines of tracebacks but those with the exceptions."""
    inside: set[int] = set()
    for number, line in enumerate(lines):
        if number not in inside and (trace := _TRACEBACK.match(line)):
            inside.update(range(number, _end_of_traceback(lines, number, trace[1])))
    return inside


def _end_of_traceback(lines: Sequence[str], start: int, indent: str) -> int:
    """Index of the line with the exception: the first one that is indented no deeper than the traceback itself."""
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if line.strip() and not line.startswith(f"{indent} "):
            return number
    return len(lines) - 1


def _excerpt(lines: Sequence[str], number: int | None, *, before: int = 3, after: int = 9) -> str:
    if number is None:
        return "\n".join(lines[-(before + after) :]).strip("\n")
    return "\n".join(lines[max(0, number - before) : number + after]).strip("\n")
