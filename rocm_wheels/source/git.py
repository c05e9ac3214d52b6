"""git sources: one bare cache per address, trees laid from it without network, submodules included and verified.

Submodules are laid at the commits that the tree records. Their addresses go through the same ``git_mirrors`` rewrites
as the main one, so an offline machine needs mirrors and no changed source.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import PinMismatch, SettingError, SourceToolMissing, SourceUnreachable, SubmoduleBroken
from rocm_wheels.release import Source


def lay(source: Source, into: Path, *, settings: Settings, console: Console) -> str:
    """Check ``source.commit`` and its submodules out into ``into``; returns the commit.

    Raises :class:`PinMismatch` when the repository has no such commit, :class:`SubmoduleBroken` and
    :class:`SourceUnreachable`.
    """
    if not shutil.which("git"):
        raise SourceToolMissing("git is not installed", remedy="apt-get install git")
    _lay(source.url, source.commit, into, settings, console)
    return source.commit


def _lay(url: str, commit: str, into: Path, settings: Settings, console: Console) -> None:
    cache = _cached(url, commit, settings, console)
    into.parent.mkdir(parents=True, exist_ok=True)
    _git("clone", "--quiet", "--no-checkout", "--shared", str(cache), str(into))
    _git("checkout", "--quiet", "--detach", commit, cwd=into)
    addresses = _submodules(into)
    for path, recorded in _recorded(into).items():
        if path not in addresses:
            raise SubmoduleBroken(
                f"{url} at {commit}: the tree records a submodule at {path}, .gitmodules has no address for it",
                remedy="the commit is broken upstream: pin another one",
            )
        target = into / path
        if target.is_dir():
            target.rmdir()
        try:
            address = _resolve(url, addresses[path])
            _refuse_unsafe(address, url, settings)
            _lay(address, recorded, target, settings, console)
        except (PinMismatch, SourceUnreachable) as error:
            raise SubmoduleBroken(f"submodule {path}: {error.message}", remedy=error.remedy) from error
    shutil.rmtree(into / ".git")  # it points into the cache, which the builder container does not see


def _recorded(tree: Path) -> dict[str, str]:
    """Path and commit of each submodule that the tree itself records."""
    rows = _git("ls-tree", "-r", "-z", "HEAD", cwd=tree).split("\0")
    return {row.partition("\t")[2]: row.split()[2] for row in rows if row.startswith("160000 ")}


def _refuse_unsafe(address: str, parent: str, settings: Settings) -> None:
    """Refuse addresses in the source that git would take for an option, a command or a place on this machine.

    A path or ``file:`` is trusted when the parent is one too or the user's ``git_mirrors`` lead to it.
    """
    trusted = _is_local(parent) or rewrite(address, settings.git_mirrors) != address
    if re.match(r"-|\w+::", address) or (_is_local(address) and not trusted):
        raise SubmoduleBroken(
            f"{parent} asks for a submodule from {address!r}, which is no address of another machine",
            remedy="if it is right, set git_mirrors='FROM=TO' for it",
        )


def _is_local(address: str) -> bool:
    scheme, sign, _ = address.partition("://")
    return scheme == "file" if sign else ":" not in address.partition("/")[0]


def _submodules(tree: Path) -> dict[str, str]:
    """Path and address of each submodule in ``.gitmodules``."""
    if not (tree / ".gitmodules").is_file():
        return {}
    text = _git("config", "--file", ".gitmodules", "--null", "--list", cwd=tree)
    values = dict(line.split("\n", 1) for line in text.split("\0") if "\n" in line)
    return {v: values[f"{k[: -len('.path')]}.url"] for k, v in values.items() if k.endswith(".path")}


def _resolve(parent: str, address: str) -> str:
    """A submodule's address; ``../x`` is relative to the superproject's."""
    if not address.startswith(("./", "../")):
        return address
    scheme, sign, rest = parent.rpartition("://")  # urllib's urljoin knows no ssh://
    return f"{scheme}{sign}{os.path.normpath(f'{rest}/{address}')}"


def rewrite(url: str, mirrors: str) -> str:
    """``url`` after the longest matching ``from=to`` of the setting ``git_mirrors``."""
    best = ("", "")
    for rule in filter(None, mirrors.split(";")):
        start, sign, replacement = rule.partition("=")
        if not sign:
            raise SettingError(f"git_mirrors has {rule!r}; each rule is FROM=TO")
        if url.startswith(start) and len(start) > len(best[0]):
            best = (start, replacement)
    return best[1] + url[len(best[0]) :] if best[0] else url


def _cached(url: str, commit: str, settings: Settings, console: Console) -> Path:
    """The bare cache of ``url``, holding ``commit``."""
    address = rewrite(url, settings.git_mirrors)
    name = url.rstrip("/").rpartition("/")[2].removesuffix(".git")
    cache = settings.cache / "git" / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}.git"
    cache.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{cache}.lock"):
        if not (cache / "HEAD").is_file():
            shutil.rmtree(cache, ignore_errors=True)
            _git("init", "--quiet", "--bare", str(cache))
        if _has(cache, commit):
            return cache
        for left in cache.glob("*.lock"):  # of a git that was killed; we hold the lock that counts
            left.unlink()
        with console.step(f"fetch {address}"):
            for refs in ([commit], ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]):
                done = _run("fetch", "--quiet", "--no-write-fetch-head", "--end-of-options", address, *refs, cwd=cache)
                if _has(cache, commit):
                    return cache
        if done.returncode:
            raise SourceUnreachable(
                f"{address} cannot be fetched: {done.stderr.strip()}",
                remedy="without that network set git_mirrors='FROM=TO' to a local mirror",
            )
    raise PinMismatch(
        f"{address} has no commit {commit}",
        remedy="the pin in the release data is wrong, or the mirror is older than it",
    )


def _has(cache: Path, commit: str) -> bool:
    """Whether ``commit`` and all that it needs is in the cache; a killed fetch may leave less."""
    return _run("rev-list", "--objects", "--quiet", f"{commit}^{{commit}}", cwd=cache).returncode == 0


def environment(**own: str) -> dict[str, str]:
    """The environment for git without what points it to another repository, as inside of a git hook."""
    local = (
        "DIR",
        "WORK_TREE",
        "INDEX_FILE",
        "OBJECT_DIRECTORY",
        "ALTERNATE_OBJECT_DIRECTORIES",
        "COMMON_DIR",
        "PREFIX",
    )
    dropped = {f"GIT_{name}" for name in local}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "LC_ALL": "C", **own}


def _run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    own = environment(GIT_TERMINAL_PROMPT="0", GIT_LFS_SKIP_SMUDGE="1")
    command = ["git", "-c", "core.autocrlf=false", "-c", "advice.detachedHead=false", *words]
    return subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)


def _git(*words: str, cwd: Path | None = None) -> str:
    done = _run(*words, cwd=cwd)
    if done.returncode:
        raise SourceUnreachable(f"`git {' '.join(words[:2])}` failed: {done.stderr.strip()}")
    return done.stdout
