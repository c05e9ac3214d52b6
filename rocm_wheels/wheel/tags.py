"""The platform tag that a wheel's own files allow, measured by symbol versions against auditwheel's policies.

Nothing of the host is looked at: auditwheel's verdict changes with the libraries that happen to be installed.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocm_wheels.elf import ElfFile

_ARCH = "x86_64"


@dataclass(frozen=True)
class Policy:
    """A manylinux policy as auditwheel ships it: allowed symbol versions by prefix and libraries of the system."""

    name: str
    aliases: tuple[str, ...]
    priority: int
    versions: Mapping[str, frozenset[str]]
    libraries: frozenset[str]

    @property
    def tag(self) -> str:
        """The platform tag, such as ``manylinux_2_28_x86_64``."""
        return f"{self.name}_{_ARCH}"


@dataclass(frozen=True, order=True)
class Blocker:
    """Why a policy does not hold: the file and the symbol version or library that it needs."""

    member: str
    library: str
    version: str

    def __str__(self) -> str:
        return f"{self.member} needs {self.version or 'the file'} of {self.library}"


@dataclass(frozen=True)
class Measured:
    """The oldest policy that all files fit and what forbids the next older one."""

    policy: Policy
    blockers: tuple[Blocker, ...]


@functools.cache
def policies() -> tuple[Policy, ...]:
    """All policies of this machine type, oldest first; ``linux`` (no promise) last."""
    text = importlib.resources.files("auditwheel").joinpath("policy/manylinux-policy.json").read_text("utf-8")
    found = [
        Policy(
            row["name"],
            tuple(row["aliases"]),
            row["priority"],
            {prefix: frozenset(names) for prefix, names in row["symbol_versions"].get(_ARCH, {}).items()},
            frozenset(row["lib_whitelist"]),
        )
        for row in json.loads(text)
        if not row["symbol_versions"] or _ARCH in row["symbol_versions"]
    ]
    return tuple(sorted(found, key=lambda p: -p.priority))


@functools.cache
def system_libraries() -> frozenset[str]:
    """Libraries that every policy leaves to the system, libc and the dynamic loader among them."""
    return frozenset.union(*(p.libraries for p in policies())) | {"ld-linux-x86-64.so.2"}


def blockers(policy: Policy, elves: Iterable[ElfFile]) -> tuple[Blocker, ...]:
    """Every symbol version that ``policy`` does not promise, sorted by member."""
    if not policy.versions:
        return ()
    found = set()
    for elf in elves:
        for library, versions in elf.verneed.items():
            if library not in system_libraries():
                continue
            for version in versions:
                prefix, _, number = version.partition("_")
                if number and number not in policy.versions.get(prefix, frozenset({number})):
                    found.add(Blocker(elf.name, library, version))
    return tuple(sorted(found))


def measure(elves: Iterable[ElfFile]) -> Measured:
    """The oldest policy that all of ``elves`` fit."""
    elves = tuple(elves)
    forbidding: tuple[Blocker, ...] = ()
    for policy in policies():
        found = blockers(policy, elves)
        if not found:
            return Measured(policy, forbidding)
        forbidding = found
    raise AssertionError("the policy without a promise holds for everything")
