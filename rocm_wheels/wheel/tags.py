"""The platform tag that a wheel's own files allow, measured by symbol versions against auditwheel's policies.

Nothing of the host is looked at: auditwheel's verdict changes with the libraries that happen to be installed.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

_ARCH = "x86_64"
_LOADERS = frozenset({"ld-linux-x86-64.so.2"})

# A distribution whose C library is that of the policy, for advice on a tag that cannot be met.
_SYSTEMS = {
    "manylinux_2_17": "CentOS 7",
    "manylinux_2_28": "AlmaLinux 8",
    "manylinux_2_31": "Debian 11 or Ubuntu 20.04",
    "manylinux_2_34": "AlmaLinux 9",
    "manylinux_2_35": "Ubuntu 22.04",
    "manylinux_2_36": "Debian 12",
    "manylinux_2_39": "Ubuntu 24.04",
    "manylinux_2_41": "Debian 13",
}


class Needing(Protocol):
    """What measuring has to know of one ELF file; :class:`rocm_wheels.elf.ElfFile` has it."""

    @property
    def name(self) -> str:
        """Its member name."""

    @property
    def needed(self) -> tuple[str, ...]:
        """DT_NEEDED."""

    @property
    def verneed(self) -> Mapping[str, tuple[str, ...]]:
        """Needed symbol versions by library."""


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

    @property
    def tags(self) -> tuple[str, ...]:
        """The platform tag and the older names of the same policy, which early installers know."""
        return (self.tag, *(f"{alias}_{_ARCH}" for alias in self.aliases))

    @property
    def system(self) -> str:
        """A distribution that has exactly these symbols, or ""."""
        return _SYSTEMS.get(self.name, "")


@dataclass(frozen=True, order=True)
class Blocker:
    """Why a policy does not hold: the file and the symbol version or library that it needs."""

    member: str
    library: str
    version: str

    def __str__(self) -> str:
        if self.version:
            return f"{self.member} needs {self.version} of {self.library}"
        return f"{self.member} needs {self.library}, which is no library of that system"


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


def find_policy(name: str) -> Policy | None:
    """The policy of a name, an old name or a platform tag."""
    wanted = name.removesuffix(f"_{_ARCH}")
    return next((p for p in policies() if wanted in (p.name, *p.aliases)), None)


@functools.cache
def system_libraries() -> frozenset[str]:
    """Libraries that every policy leaves to the system, libc and the dynamic loader among them."""
    return _LOADERS.union(*(p.libraries for p in policies()))


def blockers(policy: Policy, elves: Iterable[Needing], elsewhere: Collection[str] | None = None) -> tuple[Blocker, ...]:
    """Every symbol version and library that ``policy`` does not promise, sorted by member.

    ``elsewhere`` names the libraries that do not have to be the system's; None: all that no policy knows.
    """
    if not policy.versions:
        return ()
    found: set[Blocker] = set()
    for elf in elves:
        found.update(_of_libraries(policy, elf, elsewhere))
        for library, versions in elf.verneed.items():
            if library in system_libraries():
                found.update(_of_symbols(policy, elf.name, library, versions))
    return tuple(sorted(found))


def _of_libraries(policy: Policy, elf: Needing, elsewhere: Collection[str] | None) -> Iterator[Blocker]:
    for library in elf.needed:
        if library in policy.libraries or library in _LOADERS:
            continue
        if library not in elsewhere if elsewhere is not None else library in system_libraries():
            yield Blocker(elf.name, library, "")


def _of_symbols(policy: Policy, member: str, library: str, versions: Iterable[str]) -> Iterator[Blocker]:
    for version in versions:
        prefix, _, number = version.partition("_")
        if number and number not in policy.versions.get(prefix, frozenset({number})):
            yield Blocker(member, library, version)


def measure(elves: Iterable[Needing], elsewhere: Collection[str] | None = None) -> Measured:
    """The oldest policy that all of ``elves`` fit; ``elsewhere`` as in :func:`blockers`."""
    elves = tuple(elves)
    forbidding: tuple[Blocker, ...] = ()
    for policy in policies():
        found = blockers(policy, elves, elsewhere)
        if not found:
            return Measured(policy, forbidding)
        forbidding = found
    raise AssertionError("the policy without a promise holds for everything")
