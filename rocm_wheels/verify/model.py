"""What a check says: findings with evidence, reason and remedy, and the report that they make."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Profile = Literal["torch", "torch-dependant", "tensorflow", "jax", "rocm-base", "any"]
PROFILES: tuple[Profile, ...] = ("torch", "torch-dependant", "tensorflow", "jax", "rocm-base", "any")


class Severity(enum.IntEnum):
    """How bad a finding is; an error keeps a wheel from being published."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, kw_only=True)
class Check:
    """An entry of the catalogue: what is checked, why it matters and what mends it."""

    id: str
    group: str
    severity: Severity
    what: str
    why: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """A check that failed on ``member`` (or the whole wheel) with ``evidence``.

    ``offset`` is where in the member, ``symbol`` the symbol that is to blame, where a check knows them.
    """

    check: Check
    member: str
    evidence: str
    offset: int | None = None
    symbol: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The finding for ``--json``."""
        return {
            "id": self.check.id,
            "group": self.check.group,
            "severity": self.check.severity.name.lower(),
            "member": self.member,
            "evidence": self.evidence,
            "offset": self.offset,
            "symbol": self.symbol or None,
            "why": self.check.why,
            "remedy": self.check.remedy,
        }


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """What to hold a wheel against.

    ``archs`` are the GPU targets that it must serve and ``commit`` the one that its package must name; ``pythons``
    interpreters for install and cold load (none: both are skipped and said to be); ``allow`` are ids of checks whose
    errors count as warnings; ``only`` ids and groups of checks outside which nothing is reported; ``memory`` bounds in
    bytes what reading holds.
    """

    profile: Profile | None = None
    archs: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    commit: str = ""
    memory: int = 256 << 20
    import_seconds: int = 120


@dataclass(frozen=True, kw_only=True)
class WheelReport:
    """The verdict on one wheel; ``skipped`` says what was not looked at and why."""

    wheel: Path
    profile: Profile
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]

    @property
    def worst(self) -> Severity:
        """The severity of the worst finding."""
        return max((f.check.severity for f in self.findings), default=Severity.NOTE)

    def as_dict(self) -> dict[str, Any]:
        """The verdict for ``--json``."""
        return {
            "wheel": str(self.wheel),
            "profile": self.profile,
            "findings": [f.as_dict() for f in self.findings],
            "skipped": list(self.skipped),
        }


@dataclass(frozen=True)
class Report:
    """The verdicts on a set of wheels and on the set; ``allowed`` are the findings that only an --allow let pass."""

    wheels: tuple[WheelReport, ...]
    set_findings: tuple[Finding, ...] = ()
    allowed: tuple[Finding, ...] = ()

    @property
    def worst(self) -> Severity:
        """The severity of the worst finding of all."""
        return max((f.check.severity for f in self.findings), default=Severity.NOTE)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, those on the set last."""
        return (*(f for w in self.wheels for f in w.findings), *self.set_findings)

    @property
    def ok(self) -> bool:
        """No error in any wheel or in the set."""
        return self.worst < Severity.ERROR

    def as_dict(self) -> dict[str, Any]:
        """The report for ``--json``."""
        return {
            "ok": self.ok,
            "wheels": [w.as_dict() for w in self.wheels],
            "set": [f.as_dict() for f in self.set_findings],
            "allowed": [f.as_dict() for f in self.allowed],
        }
