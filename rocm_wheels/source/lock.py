"""Locks: a tag or branch resolved once to commits, submodules included, so that every later build takes the same.

A lock is a file ``locks/<release>.toml`` that people read and commit. A release that is built from git and has one is
built from what the lock says and from nothing else; without one the commit of the release data is taken.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from rocm_wheels.config import PROJECT_ROOT, Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import LockDiffers, UsageError
from rocm_wheels.release import Release, Source, Submodule
from rocm_wheels.release.schema import build, read_toml
from rocm_wheels.source import git

LOCKS = PROJECT_ROOT / "locks"

_HEADER = "# Written by `invoke lock`: a build takes what is here and nothing else.\n\n"


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The sources of one release: ``ref`` is what was asked for, ``commit`` what it stood for, ``tree`` its content."""

    release: str
    url: str
    ref: str
    commit: str
    tree: str
    submodules: tuple[Submodule, ...] = ()

    def differences(self, newer: Lock) -> list[str]:
        """What ``newer`` changes, a line each; nothing for the same sources."""
        mine, other = _flat(self), _flat(newer)
        return [
            f"{name}: {mine.get(name, 'not there')} → {other.get(name, 'gone')}"
            for name in dict.fromkeys((*mine, *other))
            if mine.get(name) != other.get(name)
        ]


def _flat(lock: Lock) -> dict[str, str]:
    return {
        "url": lock.url,
        "ref": lock.ref,
        "commit": lock.commit,
        "tree": lock.tree,
        **{f"submodule {m.path}": f"{m.commit} of {m.url}" for m in lock.submodules},
    }


def resolve(release: Release, *, ref: str = "", fork: bool = False, settings: Settings, console: Console) -> Lock:
    """The lock that ``release`` would get now.

    ``ref`` is a tag, branch or commit; by default the commit of the official wheels, of AMD's ``fork`` its release
    branch. Raises :class:`UsageError` for a release without a repository, :class:`UnknownFact` when the data does not
    know the branch, and the errors of fetching.
    """
    facts = release.facts
    if facts is None:
        raise UsageError(
            f"{release.name} has no git repository to lock", remedy=f"it is a {release.source.kind} source"
        )
    what = f"of {release.name}"
    url = (facts.amd_url if fork else facts.url).require(f"the repository {what}")
    if not ref:
        ref = (
            facts.amd_branch.require(f"AMD's release branch {what} (name one with --ref)")
            if fork
            else facts.commit.require(f"the commit {what}")
        )
    commit = git.find_commit(url, ref, settings=settings)
    found = list(git.modules(url, commit, settings=settings, console=console))
    return Lock(
        release=release.name, url=url, ref=ref, commit=commit, tree=found[0].tree, submodules=git.submodules(found)
    )


def read_lock(name: str, locks: Path = LOCKS) -> Lock | None:
    """The lock of release ``name``, or None; raises :class:`MatrixError` for a file that is none."""
    path = locks / f"{name}.toml"
    if not path.is_file():
        return None
    found: Lock = build(Lock, read_toml(path), str(path))
    if found.release != name:
        raise LockDiffers(f"{path} is the lock of {found.release}", remedy="a lock has the name of its release")
    return found


def write_lock(lock: Lock, *, update: bool, locks: Path = LOCKS) -> list[str]:
    """Write ``lock`` and return what it changes; without ``update`` an existing lock that differs stays as it is.

    Raises :class:`LockDiffers` with the differences.
    """
    old = read_lock(lock.release, locks)
    changed = old.differences(lock) if old else []
    path = locks / f"{lock.release}.toml"
    if changed and not update:
        text = "\n".join(f"  - {line}" for line in changed)
        raise LockDiffers(f"{path} differs from its source:\n{text}", remedy="--update takes the new state over")
    locks.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(_HEADER + tomli_w.dumps(dataclasses.asdict(lock)), "utf-8")
    beside.replace(path)
    return changed


def locked(release: Release, locks: Path = LOCKS) -> Release:
    """``release`` with the source of its lock; as it is when it is not built from git or has no lock.

    Raises :class:`UnknownFact` for a git source without a lock whose commit nobody knows.
    """
    if release.source.kind != "git":
        return release
    lock = read_lock(release.name, locks)
    if lock is None:
        if release.facts and not release.source.commit:
            release.facts.commit.require(f"the commit of {release.name}")
        return release
    origin = f"locks/{lock.release}.toml"
    source = Source(kind="git", url=lock.url, commit=lock.commit, submodules=lock.submodules, origin=origin)
    return dataclasses.replace(release, source=source)
