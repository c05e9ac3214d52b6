"""What a check finds."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from rocm_wheels.console import Console


class State(enum.StrEnum):
    """How bad it is: a failure makes a later step fail, a warning may; what is unknown could not be looked at."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Result:
    """One finding: ``check`` is the id of the check, ``found`` what it saw, ``remedy`` what mends it.

    ``fix`` does so, where that is safe: it makes what is missing and never changes what is there.
    """

    check: str
    state: State
    found: str
    remedy: str = ""
    fix: Callable[[Console], None] | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, object]:
        """The finding as ``--json`` prints it."""
        return {
            "check": self.check,
            "state": str(self.state),
            "found": self.found,
            "remedy": self.remedy,
            "fixable": self.fix is not None,
        }
