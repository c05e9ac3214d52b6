"""Patch series: classified as a whole on scratch copies, then put on a tree in one go.

git's rules apply, whatever the user's git is configured to: no fuzz, so a patch for another version fails instead of
landing somewhere near (pytorch#29303, ROCm/TheRock#1674). Each patch is tried on what the ones before it leave. The
result lies whole beside the tree's record before a file of the tree changes; a run that was killed while it was put in
place is finished by the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.config import PROJECT_ROOT
from rocm_wheels.errors import PatchFailed, PatchTargetMissing, SourceToolMissing
from rocm_wheels.release import Release
from rocm_wheels.source.git import environment
from rocm_wheels.source.model import PHASES, STATE, Patch, PatchStatus

PATCHES = PROJECT_ROOT / "patches"

_OFFSET = re.compile(r"^Hunk #\d+ succeeded at .*offset .*$", re.MULTILINE)
_ABSENT = re.compile(r"^error: (.+): No such file or directory$", re.MULTILINE)
_PENDING = STATE.parent / "pending"


def find_patches(release: Release, root: Path = PATCHES) -> tuple[Patch, ...]:
    """The series of ``release`` in order of phase and number."""
    folder = root / release.framework / release.version
    return tuple(
        Patch(path=path, phase=phase, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        for phase in PHASES
        for path in sorted((folder / phase).glob("*.patch"))
    )


def classify(series: Sequence[Patch], tree: Path) -> tuple[PatchStatus, ...]:
    """What each patch of ``series`` would do to ``tree``, which stays as it is."""
    with _scratch(series, tree) as scratch:
        return put_on(series, scratch, tree)


def apply(series: Sequence[Patch], tree: Path) -> tuple[PatchStatus, ...]:
    """Put ``series`` on ``tree``, all of it or nothing; patches that are already there are left out.

    Raises :class:`PatchTargetMissing` or :class:`PatchFailed` before anything in ``tree`` changes.
    """
    _finish(tree)
    with _scratch(series, tree) as scratch:
        found = put_on(series, scratch, tree)
        _refuse(found)
        if any(s.state == "applies" for s in found):
            _stage(scratch, touched(series), tree)
    _finish(tree)
    return found


def put_on(series: Sequence[Patch], scratch: Path, tree: Path) -> tuple[PatchStatus, ...]:
    """Put ``series`` on the copies in ``scratch``.

    When that fails the first patches may be on the tree already, the later ones having changed their lines: then
    they come off in reverse.
    """
    found = tuple(_try(patch, scratch, tree) for patch in series)
    if all(s.state in ("applies", "already applied") for s in found):
        return found
    for count in range(len(series), 1, -1):
        with _scratch(series, tree) as undone:
            there = series[:count]
            if any(_git_apply(patch, undone, "--reverse").returncode for patch in reversed(there)):
                continue
        copy_files(touched(series), tree, scratch)
        rest = tuple(_try(patch, scratch, tree) for patch in series[count:])
        return (*(PatchStatus(patch=patch, state="already applied") for patch in there), *rest)
    return found


def _refuse(found: Sequence[PatchStatus]) -> None:
    bad = [s for s in found if s.state in ("fails", "target missing")]
    if not bad:
        return
    text = "\n".join(f"  - {s.patch.name}: {s.state}: {s.reason}" for s in bad)
    message = f"{len(bad)} of {len(found)} patches do not go on this source; the tree is unchanged:\n{text}"
    if all(s.state == "target missing" for s in bad):
        raise PatchTargetMissing(message, remedy="is a submodule missing, or the patch for another version?")
    raise PatchFailed(message, remedy="`invoke patch` shows the whole series; mend or remove the patch")


@contextmanager
def _scratch(series: Sequence[Patch], tree: Path) -> Iterator[Path]:
    """A folder with copies of just the files that ``series`` touches."""
    names = touched(series)
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as name:
        copy_files(names, tree, Path(name))
        yield Path(name)


def copy_files(names: Sequence[str], tree: Path, scratch: Path) -> None:
    """Make the files ``names`` in ``scratch`` what they are in ``tree``."""
    for name in names:
        for parent in Path(name).parents:
            if (tree / parent).is_symlink():
                raise PatchFailed(f"the series changes {name}, but {parent} is a symbolic link in {tree}")
        source, target = tree / name, scratch / name
        if source.is_dir() and not source.is_symlink():
            raise PatchFailed(f"the series changes the file {name}, which is a directory in {tree}")
        target.unlink(missing_ok=True)
        if source.is_file() or source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def touched(series: Sequence[Patch]) -> list[str]:
    """Every file that ``series`` reads, writes or removes."""
    return sorted({name for patch in series for name in _names(patch)})


def _names(patch: Patch) -> list[str]:
    """The files of one patch as git reads them, old and new side; refuses those that leave the tree."""
    names = set()
    for side in ((), ("--reverse",)):
        listed = _git_apply(patch, patch.path.parent, "--numstat", "-z", *side).stdout
        names |= {row.split("\t", 2)[2] for row in listed.split("\0") if row.count("\t") >= 2}
    for name in names:
        if name.startswith("/") or {"..", ".git", STATE.parts[0]} & set(name.split("/")):
            raise PatchFailed(f"{patch.name} names {name!r}, which is outside the source tree")
    return sorted(names)


def _try(patch: Patch, scratch: Path, tree: Path) -> PatchStatus:
    forward = _git_apply(patch, scratch, "--check", "--verbose")
    backward = _git_apply(patch, scratch, "--check", "--verbose", "--reverse")
    moved = _OFFSET.findall(forward.stderr)
    exactly_there = backward.returncode == 0 and not _OFFSET.search(backward.stderr)
    if forward.returncode == 0 and not (moved and exactly_there):
        _git_apply(patch, scratch)
        return PatchStatus(patch=patch, state="applies", reason="; ".join(moved))
    if backward.returncode == 0:
        return PatchStatus(patch=patch, state="already applied")
    if absent := _ABSENT.search(forward.stderr):
        return PatchStatus(patch=patch, state="target missing", reason=_missing_reason(absent[1], tree))
    return PatchStatus(patch=patch, state="fails", reason=_why(patch, scratch, tree, forward.stderr))


def _why(patch: Patch, scratch: Path, tree: Path, stderr: str) -> str:
    """The cause of a failure: line ends, a patch that is there in part, or git's own words with file and line.

    In a git checkout also the last commit that changed the file.
    """
    if ends := _line_ends(patch, scratch):
        return ends
    words = "; ".join(re.findall(r"^error: ((?!while searching).+)$", stderr, re.MULTILINE)) or stderr.strip()
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as name:
        trial = Path(name)
        copy_files(_names(patch), scratch, trial)
        done = _git_apply(patch, trial, "--reverse", "--reject", "--verbose").stderr
    there = re.findall(r"^(?:Hunk #\d+ applied cleanly|Applied patch .* cleanly)", done, re.MULTILINE)
    if there:
        words = f"{words} (partly applied: some of it is in the source already)"
    failed = re.search(r"^error: patch failed: (.+):\d+$", stderr, re.MULTILINE)
    last = _last_commit(tree / failed[1]) if failed else ""
    return f"{words}; last changed by {last}" if last else words


def _last_commit(file: Path) -> str:
    """The newest commit of a file's repository that changed it, "" outside of a repository."""
    command = ["git", "-C", str(file.parent), "log", "-1", "--format=%h %s", "--", file.name]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _git_apply(patch: Patch, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """``git apply`` in a folder that git takes for no part of a repository, with no configuration of the user's."""
    isolated = environment(
        GIT_DIR=os.devnull,
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_COUNT="0",
        GIT_CONFIG_PARAMETERS="",
    )
    command = ["git", "apply", "--whitespace=nowarn", *options, str(patch.path.resolve())]
    try:
        return subprocess.run(
            command, cwd=folder, env=isolated, capture_output=True, text=True, errors="surrogateescape", check=False
        )
    except FileNotFoundError as error:
        raise SourceToolMissing("git is needed to apply patches", remedy="apt-get install git") from error


def _missing_reason(name: str, tree: Path) -> str:
    parent = next(p for p in Path(name).parents if (tree / p).is_dir())
    inside = Path(name).relative_to(parent).parts[0]
    if parent != Path() and not any((tree / parent).iterdir()):
        return f"{name} is not there: {parent} is empty, a submodule that was not fetched"
    return f"{name} is not there: {parent}/ has no {inside}"


def _line_ends(patch: Patch, scratch: Path) -> str:
    """Why a patch fails when the cause is carriage returns on one side only (microsoft/vcpkg#442)."""
    in_patch = b"\r\n" in patch.path.read_bytes()
    files = [scratch / n for n in _names(patch) if (scratch / n).is_file()]
    in_tree = any(b"\r\n" in file.read_bytes() for file in files)
    if in_patch and not in_tree:
        return "the patch has CRLF line ends, the source has LF: convert the patch (sed 's/\\r$//')"
    if in_tree and not in_patch:
        return "the source has CRLF line ends, the patch has LF: make the patch from this source"
    return ""


def _stage(scratch: Path, names: Sequence[str], tree: Path) -> None:
    """Lay the patched files beside the tree's record; the rename at the end decides that they will be taken over."""
    beside = (tree / _PENDING).with_suffix(".part")
    shutil.rmtree(beside, ignore_errors=True)
    (beside / "files").mkdir(parents=True)
    copy_files(names, scratch, beside / "files")
    (beside / "names.json").write_text(json.dumps(list(names)), "utf-8")
    beside.rename(tree / _PENDING)


def _finish(tree: Path) -> None:
    """Take over what was staged, by this run or by one that was killed after it had staged everything."""
    pending = tree / _PENDING
    if not pending.is_dir():
        return
    for name in json.loads((pending / "names.json").read_text("utf-8")):
        _take_over(pending / "files" / name, tree, name)
    finished = pending.with_suffix(".done")
    shutil.rmtree(finished, ignore_errors=True)
    pending.rename(finished)
    shutil.rmtree(finished)


def _take_over(new: Path, tree: Path, name: str) -> None:
    """Make the file ``name`` of ``tree`` what ``new`` is, renamed in; one that is gone there goes here."""
    target = tree / name
    if not new.exists() and not new.is_symlink():
        target.unlink(missing_ok=True)
        for parent in list(Path(name).parents)[:-1]:
            if not (tree / parent).is_dir() or any((tree / parent).iterdir()):
                break
            (tree / parent).rmdir()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(new, beside, follow_symlinks=False)
    beside.replace(target)
