"""What people and machines see: steps, progress and tables on stderr, results on stdout.

Bars and colours appear only on a terminal; elsewhere each step is one line. ``quiet`` (used with ``--json``) keeps
stderr to warnings.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from rocm_wheels.errors import RocmWheelsError, printable, redact

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

# rich is imported where something is drawn: it takes longer than a quiet repair of a small wheel.


class Console:
    """Output of one run. Pass it down; nothing else prints."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    @cached_property
    def _err(self) -> RichConsole:
        return _stderr()

    def line(self, text: str) -> None:
        """One line of progress."""
        if not self.quiet:
            self._err.print(printable(redact(text)), markup=False)

    def warn(self, text: str) -> None:
        """Something the user should know that stops nothing."""
        from rich.markup import escape

        self._err.print(f"[yellow]warning:[/] {escape(printable(redact(text)))}")

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """A named piece of work: shown when it starts, with its seconds when it ends well."""
        self.line(f"• {text}")
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        if took >= 2:
            self.line(f"  done: {text} ({took:.1f} s)")

    @contextmanager
    def progress(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar of ``total`` units; yields a function that takes the units done since the last call."""
        if self.quiet or not self._err.is_terminal:
            yield self._plain_progress(text, total)
            return
        from rich.markup import escape
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=self._err, transient=True) as bar:
            task = bar.add_task(escape(printable(redact(text))), total=total)
            yield lambda units: bar.advance(task, units)

    def _plain_progress(self, text: str, total: int) -> Callable[[int], None]:
        """Without a terminal: one line every ten seconds, with an estimate of the time left."""
        began = last = time.monotonic()
        done = 0

        def advance(units: int) -> None:
            nonlocal done, last
            done += units
            now = time.monotonic()
            if now - last >= 10 and 0 < done < total:
                last = now
                left = (now - began) / done * (total - done)
                self.line(f"  {text}: {done}/{total}, about {duration(left)} left")

        return advance


def _stderr() -> RichConsole:
    from rich.console import Console as RichConsole

    return RichConsole(stderr=True, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """``2 h 05 min``, ``12 min``, ``40 s``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A result table on stdout; on a terminal too narrow for its words, a block of lines per row."""
    from rich.console import Console as RichConsole
    from rich.markup import escape
    from rich.table import Table

    def clean(value: object) -> str:
        return printable(redact(str(value)))

    terminal = sys.stdout.isatty()
    out = RichConsole(highlight=False, width=None if terminal else 400)  # a file or pipe has no edge to wrap at
    head = [clean(column) for column in columns]
    body = [[clean(value) for value in row] for row in rows]
    if title:
        out.print(f"[italic]{escape(clean(title))}[/]")
    widths = [_words(cells) for cells in zip_longest(head, *body, fillvalue="")]
    if terminal and body and sum(widths) + 2 * (len(widths) - 1) > out.width:
        for row in body:
            out.print(f"[bold]{escape(row[0])}[/]")
            for name, text in zip(head[1:], row[1:], strict=False):
                if text:
                    out.print(escape(f"  {name}: {text}"))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, width in zip(head, widths, strict=True):
        table.add_column(escape(name), no_wrap=False, overflow="fold", min_width=width)
    for row in body:
        table.add_row(*map(escape, row))
    with out.capture() as text_of:
        out.print(table)
    lines = text_of.get().splitlines()
    print("\n".join(line if terminal else line.rstrip() for line in lines))


def _words(cells: Iterable[str]) -> int:
    """The columns that the widest word of some cells takes."""
    from rich.cells import cell_len

    return max((cell_len(word) for cell in cells for word in cell.split()), default=0)


def print_json(value: Any) -> None:
    """A result for machines on stdout: sorted keys, two spaces."""
    print(redact(json.dumps(value, indent=2, sort_keys=True, default=str)))


@contextmanager
def exit_codes(*, as_json: bool = False) -> Iterator[None]:
    """Turn a :class:`RocmWheelsError` into its message and exit code; both front ends run inside it."""
    try:
        yield
    except RocmWheelsError as error:
        if as_json:
            print_json(error.as_dict())
        else:
            from rich.markup import escape

            _stderr().print(f"[bold red]error:[/] {escape(str(error))}")
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
