"""Checks on wheels that are handed out together. A set of one has nothing to disagree with."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from packaging.utils import canonicalize_name

from rocm_wheels.repair.providers import DATA, rocm_major, stem
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.checks.identity import commit_of
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject, fits

# Names that exist on indexes for ROCm only: what such a requirement asks for comes with the set or from nowhere.
_PRIVATE = re.compile(r"rocm-layers-[\w-]+|[\w-]*triton-rocm|[\w-]+-rocm")


def check_set(subjects: Sequence[Subject]) -> Iterator[Finding]:
    """All findings on the set."""
    if len(subjects) < 2:
        return
    versions: dict[tuple[str, str], list[Subject]] = defaultdict(list)
    for subject in subjects:
        versions[subject.archive.distribution, str(subject.archive.version)].append(subject)
    yield from _matrix(subjects)
    for (distribution, version), same in sorted(versions.items()):
        yield from _commits(f"{distribution} {version}", same)
        yield from _archs(f"{distribution} {version}", same)
    yield from _rocm(subjects)
    yield from _requirements(subjects)
    yield from _order(subjects)
    yield from _overlap(subjects)


def _pythons(subject: Subject) -> frozenset[str]:
    """The CPython ABIs that the wheel is for; none for a wheel that any Python takes."""
    return frozenset(t.abi for t in subject.archive.tags if re.fullmatch(r"cp3\d+t?", t.abi))


def _matrix(subjects: Sequence[Subject]) -> Iterator[Finding]:
    have: dict[str, set[str]] = defaultdict(set)
    for subject in subjects:
        if pythons := _pythons(subject):
            have[subject.archive.distribution] |= pythons
    every = frozenset[str]().union(*have.values())
    for distribution, there in sorted(have.items()):
        if lacking := sorted(every - there):
            others = sorted(d for d, p in have.items() if set(lacking) <= p)
            evidence = f"there is none for {', '.join(lacking)}, {' and '.join(others) or 'others'} have theirs"
            yield finding("set-incomplete", distribution, evidence)


def _commits(what: str, same: Sequence[Subject]) -> Iterator[Finding]:
    by_commit: dict[str, list[str]] = defaultdict(list)
    for subject in same:
        if commit := commit_of(subject):
            by_commit[commit].append(subject.name)
    if len(by_commit) > 1:
        told = "; ".join(f"{commit[:12]}: {', '.join(names)}" for commit, names in sorted(by_commit.items()))
        yield finding("set-commit", what, told)


def _archs(what: str, same: Sequence[Subject]) -> Iterator[Finding]:
    by_archs: dict[frozenset[str], list[str]] = defaultdict(list)
    for subject in same:
        own = [e.everywhere for m, e in subject.elves.items() if e.bundles and stem(posixpath.basename(m)) not in DATA]
        if own:
            by_archs[frozenset.intersection(*own)].append(subject.name)
    if len(by_archs) > 1:
        told = "; ".join(f"{' '.join(sorted(archs)) or 'none'}: {', '.join(n)}" for archs, n in by_archs.items())
        yield finding("set-archs", what, told)


def _rocm(subjects: Sequence[Subject]) -> Iterator[Finding]:
    by_major: dict[int, list[str]] = defaultdict(list)
    for subject in subjects:
        major = rocm_major(name for elf in subject.elves.values() for name in elf.needed)
        if major is not None:
            by_major[major].append(subject.name)
    if len(by_major) > 1:
        told = "; ".join(f"ROCm {major}: {', '.join(names)}" for major, names in sorted(by_major.items()))
        yield finding("set-rocm", subjects[0].name, told)


def _requirements(subjects: Sequence[Subject]) -> Iterator[Finding]:
    by_name: dict[str, list[Subject]] = defaultdict(list)
    for subject in subjects:
        by_name[subject.archive.distribution].append(subject)
    for subject in subjects:
        for requirement in subject.requirements:
            if requirement.marker is not None and "extra" in str(requirement.marker):
                continue
            candidates = by_name.get(canonicalize_name(requirement.name), [])
            met = any(
                requirement.specifier.contains(c.archive.version, prereleases=True) and fits(subject, c)
                for c in candidates
            )
            if met:
                continue
            if candidates:
                there = ", ".join(sorted(c.name for c in candidates))
                yield finding("set-requirement", subject.name, f"requires {requirement}, the set has {there}")
            elif "+" in str(requirement.specifier) or _PRIVATE.fullmatch(canonicalize_name(requirement.name)):
                evidence = f"requires {requirement}, which no public index has, and the set has none"
                yield finding("set-requirement", subject.name, evidence)


def _order(subjects: Sequence[Subject]) -> Iterator[Finding]:
    labels: dict[tuple[str, str], set[str]] = defaultdict(set)
    for subject in subjects:
        version = subject.archive.version
        labels[subject.archive.distribution, version.public].add(version.local or "")
    for (distribution, public), found in sorted(labels.items()):
        if len(found) < 2:
            continue
        by_rule = max((s.archive.version for s in subjects if s.archive.version.public == public), default=None)
        best = max(found, key=_numbers)
        wins = by_rule.local if by_rule is not None else ""
        trap = f"; by number {best} would be the highest" if best != wins else ""
        evidence = f"{public} is there with {', '.join(repr(f) for f in sorted(found))}: resolvers take {wins!r}{trap}"
        yield finding("set-order", distribution, evidence)


def _numbers(label: str) -> tuple[str, ...]:
    """A key that sorts rocm10.0 above rocm6.2."""
    return tuple(f"{int(part):09}" if part.isdigit() else part for part in re.findall(r"\d+|[a-z]+", label))


def _overlap(subjects: Sequence[Subject]) -> Iterator[Finding]:
    owner: dict[str, Subject] = {}
    told: set[tuple[str, str]] = set()
    for subject in subjects:
        for name in subject.content:
            other = owner.setdefault(name, subject)
            pair = (other.archive.distribution, subject.archive.distribution)
            if pair[0] != pair[1] and pair not in told and fits(subject, other):
                told.add(pair)
                yield finding("set-overlap", subject.name, f"{name} is also in {other.name}")
