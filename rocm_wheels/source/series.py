"""Makes and renews patches: a changed tree becomes the next patch of a series, a series moves to another tree.

A tree is a git checkout, submodules included, or one that was laid here. Of both only the files in question are copied;
the tree itself is never written to.
"""

from __future__ import annotations

import filecmp
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import PatchFailed, SubmoduleBroken, UsageError
from rocm_wheels.source.checkout import prepare
from rocm_wheels.source.git import environment
from rocm_wheels.source.model import PHASES, STATE, CheckoutPlan, Patch, Phase
from rocm_wheels.source.patches import PATCHES, classify, copy_files, put_on, touched

_BODY = re.compile(rb"^diff --git ", re.MULTILINE)
_LEFT_OUT = {STATE.parts[0], "build", "__pycache__"}


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What became of a patch when its series moved to a tree."""

    patch: Patch
    state: Literal["unchanged", "refreshed", "already applied"]


def new_patch(
    title: str,
    tree: Path,
    *,
    plan: CheckoutPlan,
    phase: Phase = "base",
    settings: Settings,
    console: Console,
    root: Path = PATCHES,
) -> Path:
    """Write what was changed in ``tree`` beyond the series of ``plan`` as its next patch; returns the file.

    The header's fields are empty: the header test refuses the patch until somebody has filled them in. Raises
    :class:`UsageError` for a title without words or a tree without changes and :class:`PatchFailed` when the series
    does not go on the tree's commit.
    """
    slug = "-".join(re.findall(r"[a-z0-9]+", title.lower()))
    if not slug or "\n" in title:
        raise UsageError(f"{title!r} gives no file name", remedy="say in a line what the patch does")
    series = [p for p in plan.patches if PHASES.index(p.phase) <= PHASES.index(phase)]
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as name:
        old, new = Path(name) / "old", Path(name) / "new"
        names = _sides(tree, series, plan, old, new, settings, console)
        diff = _diff(old, new, names)
    if not diff:
        raise UsageError(f"{tree} has no changes beyond its {len(series)} patches", remedy="edit it first")
    folder = root / plan.release.framework / plan.release.version / phase
    number = max((int(path.name[:4]) for path in folder.glob("[0-9]*.patch")), default=0) + 1
    versions = f"{plan.release.framework} {plan.release.version}"
    header = f"{title.strip()}\n\nWhy:\nLink:\nVersions: {versions}\nTested:\n\n"
    path = folder / f"{number:04}-{slug}.patch"
    _write(path, header.encode() + diff)
    return path


def refresh(series: Sequence[Patch], tree: Path) -> Iterator[Refreshed]:
    """Move ``series`` to ``tree``, patch by patch: files whose lines stand elsewhere there are written anew.

    The header stays. A tree with git objects of the old files gets a three-way merge. Raises :class:`PatchFailed` at
    the first patch that conflicts; those before it are done by then, it and the rest stay as they are.
    """
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as name:
        work = Path(name)
        copy_files(touched(series), tree, work)
        git = _Scratch(work, tree)
        for patch in series:
            yield Refreshed(patch=patch, state=_refresh(patch, git))


def _refresh(patch: Patch, git: _Scratch) -> Literal["unchanged", "refreshed", "already applied"]:
    old = patch.path.read_bytes()
    before = git.tree()
    (status,) = classify([patch], git.folder)
    if status.state == "already applied":
        return "already applied"
    done = git.run("apply", "--3way", "--whitespace=nowarn", str(patch.path.resolve()))
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        words = "; ".join(re.findall(r"^(?:error: |U |Applied patch .* with conflicts).*$", said, re.MULTILINE))
        raise PatchFailed(
            f"{patch.name} conflicts with this tree (those before it are done): {words or said.strip()}",
            remedy="make its change in the tree by hand and take it up with `invoke patch RELEASE TREE --new TITLE`",
        )
    diff = git.diff(before)
    if not diff:
        return "already applied"
    start = _BODY.search(old)
    renewed = old[: start.start() if start else 0] + diff
    if _lines(renewed) == _lines(old):
        return "unchanged"
    _write(patch.path, renewed)
    return "refreshed"


def _lines(patch: bytes) -> bytes:
    """A patch without the hashes of its index lines, which change with any other line of a file."""
    return re.sub(rb"^index .*\n", b"", patch, flags=re.MULTILINE)


class _Scratch:
    """A throw-away repository of a few files; it sees the objects of the tree's own repositories."""

    def __init__(self, folder: Path, tree: Path | None = None) -> None:
        self.folder = folder
        objects = [_objects(tree / place) for place in ("", *(p for p, _ in _repositories(tree)))] if tree else []
        self._environment = environment(
            GIT_CONFIG_GLOBAL=os.devnull,
            GIT_CONFIG_NOSYSTEM="1",
            GIT_ALTERNATE_OBJECT_DIRECTORIES=os.pathsep.join(filter(None, objects)),
        )
        folder.mkdir(exist_ok=True)
        self.run("init", "--quiet")
        (folder / ".git" / "info").mkdir(exist_ok=True)
        (folder / ".git" / "info" / "attributes").write_text("* -text -filter -ident\n", "utf-8")
        self.add()

    def run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        command = ["git", "-c", "core.autocrlf=false", "-c", "core.safecrlf=false", *words]
        return subprocess.run(command, cwd=self.folder, env=self._environment, capture_output=True, check=False)

    def add(self) -> None:
        self.run("add", "--all", "--force", ".")

    def tree(self) -> str:
        return self.run("write-tree").stdout.decode().strip()

    def diff(self, before: str) -> bytes:
        """The change from tree ``before`` to what is staged, as the bytes of a patch."""
        return self.run("diff", "--cached", "--binary", "--full-index", "-M", before).stdout


def _objects(repository: Path) -> str:
    return _ask(repository, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()


def _ask(repository: Path, *words: str) -> str:
    if not (repository / ".git").exists():
        return ""
    done = subprocess.run(
        ["git", "-C", str(repository), "-c", "core.quotePath=false", *words],
        env=environment(),
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )
    return "" if done.returncode else done.stdout


def _repositories(tree: Path, place: str = "") -> Iterator[tuple[str, str]]:
    """Path and recorded commit of each submodule that is checked out in ``tree``, and of theirs."""
    for row in _ask(tree / place, "ls-files", "--stage", "-z").split("\0"):
        if row.startswith("160000 ") and (tree / place / row.partition("\t")[2] / ".git").exists():
            inside = str(Path(place) / row.partition("\t")[2])
            yield inside, row.split()[1]
            yield from _repositories(tree, inside)


def _sides(
    tree: Path, series: Sequence[Patch], plan: CheckoutPlan, old: Path, new: Path, settings: Settings, console: Console
) -> list[str]:
    """Lay the files that may differ, as the series leaves them in ``old`` and as they are in ``new``; their names."""
    for side in (old, new):
        side.mkdir()
    if not (tree / ".git").exists():
        pristine = old.with_name("pristine")
        prepare(replace(plan, patches=tuple(series)), pristine, settings=settings, console=console)
        names = _different(pristine, tree)
        copy_files(names, pristine, old)
        copy_files(names, tree, new)
        return names
    names = sorted({*_dirty(tree), *touched(series)})
    _lay_head(tree, names, old)
    copy_files(names, tree, new)
    _refuse_line_ends(names, old, new)
    states = {status.state for status in classify(series, tree)}
    put_on(series, old, old)
    if "already applied" not in states:
        put_on(series, new, new)
    return names


def _different(pristine: Path, tree: Path) -> list[str]:
    """Names of files that are not the same in both, but for what a build leaves."""
    names = {*_files(pristine), *_files(tree)}
    return sorted(n for n in names if not _same(pristine / n, tree / n))


def _files(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in _LEFT_OUT]
        yield from (str((Path(folder) / f).relative_to(root)) for f in files if not f.endswith(".pyc"))


def _same(one: Path, two: Path) -> bool:
    if one.is_symlink() or two.is_symlink():
        return one.is_symlink() and two.is_symlink() and one.readlink() == two.readlink()
    if not (one.is_file() and two.is_file()):
        return False
    return (one.stat().st_mode ^ two.stat().st_mode) & 0o100 == 0 and filecmp.cmp(one, two, shallow=False)


def _dirty(tree: Path) -> Iterator[str]:
    """Every changed, new or removed file of a checkout and its submodules.

    Raises :class:`SubmoduleBroken` for a submodule at another commit than the tree records: no patch can say that.
    """
    for place, recorded in (("", ""), *_repositories(tree)):
        repository = tree / place
        if recorded and (found := _ask(repository, "rev-parse", "HEAD").strip()) != recorded:
            raise SubmoduleBroken(
                f"{place} is at {found}, the tree records {recorded}; a patch cannot move a submodule",
                remedy="git submodule update --init --recursive, or pin another commit",
            )
        words = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
        for row in filter(None, _ask(repository, *words).split("\0")):
            if not row.endswith("/"):  # a repository that is no submodule
                yield str(Path(place) / row[3:])


def _lay_head(tree: Path, names: Sequence[str], into: Path) -> None:
    """The files ``names`` of a checkout as its commits have them."""
    places = sorted((p for p, _ in _repositories(tree)), key=len, reverse=True)
    for place in [*places, ""]:
        mine = [n for n in names if n.startswith(f"{place}/" if place else "")]
        names = [n for n in names if n not in mine]
        here = _ask(tree / place, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
        known = sorted({str(Path(n).relative_to(place)) for n in mine} & set(here))
        if known:
            _extract(tree / place, known, into / place)


def _extract(repository: Path, names: Sequence[str], into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-git-") as scratch:
        own = environment(
            GIT_INDEX_FILE=f"{scratch}/index",
            GIT_DIR=_ask(repository, "rev-parse", "--absolute-git-dir").strip(),
            GIT_WORK_TREE=str(into),
        )
        for words, data in ((("read-tree", "HEAD"), ""), (("checkout-index", "-z", "--stdin"), "\0".join(names))):
            subprocess.run(
                ["git", "-c", "core.autocrlf=false", *words],
                cwd=into,
                env=own,
                input=os.fsencode(data),
                capture_output=True,
                check=True,
            )


def _refuse_line_ends(names: Sequence[str], old: Path, new: Path) -> None:
    """Raise :class:`PatchFailed` for files that git checked out with CRLF: the patch would fit no other checkout."""
    for name in names:
        if (old / name).is_file() and (new / name).is_file():
            data = (new / name).read_bytes()
            if (
                b"\r\n" in data
                and data.count(b"\r\n") == data.count(b"\n")
                and b"\r\n" not in (old / name).read_bytes()
            ):
                raise PatchFailed(
                    f"{name} has CRLF line ends in the tree and LF in its commit (core.autocrlf?)",
                    remedy="git config core.autocrlf false, then check the file out again and redo the edit",
                )


def _diff(old: Path, new: Path, names: Sequence[str]) -> bytes:
    git = _Scratch(old)
    before = git.tree()
    copy_files(names, new, old)
    git.add()
    return git.diff(before)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(data)
    beside.replace(path)
