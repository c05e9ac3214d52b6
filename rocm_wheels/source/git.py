"""git sources: one bare cache per address, trees laid from it without network, submodules included and verified.

Of a server that allows it only the pinned commit is fetched, of any other the whole repository. Submodules are laid
at the commits that the tree records. Their addresses go through the same ``git_mirrors`` rewrites as the main one, so
an offline machine needs mirrors and no changed source.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from filelock import FileLock

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import PinMismatch, SourceToolMissing, SourceUnreachable, SubmoduleBroken
from rocm_wheels.release import Source, Submodule
from rocm_wheels.source.address import refuse_unsafe, resolve, rewrite, split_credentials

# Asked for the credentials of an address: they come from the environment, not from a command line.
_HELPER = (
    '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" '
    '"$ROCM_WHEELS_GIT_USERNAME" "$ROCM_WHEELS_GIT_PASSWORD"; }; f'
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """A repository of a source at its commit, in the cache; ``path`` is "" for the main one."""

    path: str
    url: str
    commit: str
    cache: Path

    @property
    def tree(self) -> str:
        """The id of the commit's tree."""
        return _git("rev-parse", f"{self.commit}^{{tree}}", cwd=self.cache).strip()


def lay(source: Source, into: Path, *, settings: Settings, console: Console) -> str:
    """Check ``source.commit`` and its submodules out into ``into``; returns the commit.

    Raises :class:`PinMismatch` when the repository has no such commit or other submodules than the lock says,
    :class:`SubmoduleBroken` and :class:`SourceUnreachable`.
    """
    found = list(modules(source.url, source.commit, settings=settings, console=console))
    if source.submodules:
        _compare(source, submodules(found))
    for module in found:
        _check_out(module, into / module.path)
    return source.commit


def modules(url: str, commit: str, *, settings: Settings, console: Console, path: str = "") -> Iterator[Module]:
    """The repository at ``commit`` and, depth first, its submodules; each is in the cache when it is handed out."""
    if not shutil.which("git"):
        raise SourceToolMissing("git is not installed", remedy="apt-get install git")
    module = Module(path=path, url=url, commit=commit, cache=_cached(url, commit, settings, console))
    yield module
    addresses = _addresses(module)
    for name, recorded in _recorded(module).items():
        if name not in addresses:
            raise SubmoduleBroken(
                f"{url} at {commit}: the tree records a submodule at {name}, .gitmodules has no address for it",
                remedy="the commit is broken upstream: pin another one",
            )
        try:
            address = resolve(url, addresses[name])
            refuse_unsafe(address, url, settings)
            inside = str(PurePosixPath(path) / name)
            yield from modules(address, recorded, settings=settings, console=console, path=inside)
        except (PinMismatch, SourceUnreachable) as error:
            raise SubmoduleBroken(f"submodule {name}: {error.message}", remedy=error.remedy) from error


def submodules(found: list[Module]) -> tuple[Submodule, ...]:
    """The submodules among ``found`` as a lock records them."""
    return tuple(Submodule(path=m.path, url=m.url, commit=m.commit, tree=m.tree) for m in found if m.path)


def find_commit(url: str, ref: str, *, settings: Settings) -> str:
    """The commit that a tag or branch stands for now; a tag before a branch of the same name.

    Raises :class:`PinMismatch` for a name that the repository does not have and :class:`SourceUnreachable`.
    """
    if re.fullmatch(r"[0-9a-f]{40}", ref):
        return ref
    address = rewrite(url, settings.git_mirrors)
    done = _ask("ls-remote", "--quiet", "--end-of-options", address)
    if done.returncode:
        raise _unreachable(address, done.stderr)
    rows = {name: commit for commit, name in (line.split("\t", 1) for line in done.stdout.splitlines())}
    for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}"):
        if name in rows:
            return rows[name]
    raise PinMismatch(f"{address} has no tag or branch {ref!r}", remedy=f"git ls-remote {address} lists what it has")


def _compare(source: Source, found: tuple[Submodule, ...]) -> None:
    """Raise :class:`PinMismatch` unless the submodules are those of the lock."""
    if found != source.submodules:
        other = sorted({m.path for m in set(found) ^ set(source.submodules)})
        raise PinMismatch(
            f"{source.url} at {source.commit} has other submodules than {source.origin}: {', '.join(other)}",
            remedy="the lock was edited or belongs to another commit: invoke lock RELEASE --update",
        )


def _check_out(module: Module, into: Path) -> None:
    """The files of ``module`` without a ``.git``: it would point into the cache, which the container does not see."""
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-git-") as scratch:
        own = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_DIR": str(module.cache), "GIT_WORK_TREE": str(into.resolve())}
        _git("read-tree", module.commit, cwd=into, **own)
        _git("checkout-index", "--all", "--force", "--quiet", cwd=into, **own)


def _recorded(module: Module) -> dict[str, str]:
    """Path and commit of each submodule that the tree itself records."""
    rows = _git("ls-tree", "-r", "-z", module.commit, cwd=module.cache).split("\0")
    return {row.partition("\t")[2]: row.split()[2] for row in rows if row.startswith("160000 ")}


def _addresses(module: Module) -> dict[str, str]:
    """Path and address of each submodule in ``.gitmodules``."""
    blob = f"{module.commit}:.gitmodules"
    if _run("cat-file", "-e", blob, cwd=module.cache).returncode:
        return {}
    text = _git("config", "--blob", blob, "--null", "--list", cwd=module.cache)
    values = dict(line.split("\n", 1) for line in text.split("\0") if "\n" in line)
    return {v: values.get(f"{k[: -len('.path')]}.url", "") for k, v in values.items() if k.endswith(".path")}


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
            done = _fetch(address, commit, cache)
        if _has(cache, commit):
            _git("update-ref", f"refs/pins/{commit}", commit, cwd=cache)  # git gc removes what no ref names
            return cache
    if done.returncode:
        raise _unreachable(address, done.stderr)
    raise PinMismatch(
        f"{address} has no commit {commit}",
        remedy="the pin in the release data is wrong, or the mirror is older than it",
    )


def _fetch(address: str, commit: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Fetch the commit alone; from a server that does not hand out single commits, all branches and tags."""
    everything = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
    for wanted in (("--depth=1", "--end-of-options", address, commit), ("--end-of-options", address, *everything)):
        done = _ask("fetch", "--quiet", "--no-write-fetch-head", "--no-tags", *wanted, cwd=cache)
        if _has(cache, commit):
            break
    return done


def _has(cache: Path, commit: str) -> bool:
    """Whether ``commit`` and all files of it are in the cache; a killed fetch may leave less."""
    words = ("rev-list", "--objects", "--quiet", "--max-count=1", f"{commit}^{{commit}}")
    return _run(*words, cwd=cache).returncode == 0


def _unreachable(address: str, stderr: str) -> SourceUnreachable:
    return SourceUnreachable(
        f"{address} cannot be reached: {stderr.strip()}",
        remedy="without that network set git_mirrors='FROM=TO' to a local mirror",
    )


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


def _ask(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """git against an address among ``words``, whose credentials it gets by its credential helper."""
    plain = [split_credentials(word) for word in words]
    secret = next((found for found in plain if found[1]), None)
    if secret is None:
        return _run(*words, cwd=cwd)
    helper = ("-c", "credential.helper=", "-c", f"credential.helper={_HELPER}")
    own = {"ROCM_WHEELS_GIT_USERNAME": secret[1], "ROCM_WHEELS_GIT_PASSWORD": secret[2]}
    return _run(*helper, *(word for word, _, _ in plain), cwd=cwd, **own)


def _run(*words: str, cwd: Path | None = None, **own: str) -> subprocess.CompletedProcess[str]:
    ssh = os.environ.get("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=30")
    env = environment(GIT_TERMINAL_PROMPT="0", GIT_LFS_SKIP_SMUDGE="1", GIT_SSH_COMMAND=ssh, **own)
    patience = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60")  # a silent server is given up
    command = ["git", "-c", "core.autocrlf=false", "-c", "gc.auto=0", *patience, *words]
    return subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def _git(*words: str, cwd: Path | None = None, **own: str) -> str:
    done = _run(*words, cwd=cwd, **own)
    if done.returncode:
        raise SourceUnreachable(f"`git {' '.join(words[:2])}` failed: {done.stderr.strip()}")
    return done.stdout
