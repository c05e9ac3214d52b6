"""Patch series: classified as a whole on scratch copies, then put on a tree in one go.

git's rules apply: no fuzz, so a patch for another version fails instead of landing somewhere near (pytorch#29303,
ROCm/TheRock#1674). Each patch is tried on what the ones before it leave.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocm_wheels.config import PROJECT_ROOT
from rocm_wheels.errors import PatchFailed, PatchTargetMissing
from rocm_wheels.release import Release
from rocm_wheels.source.model import PHASES, Patch, PatchStatus

PATCHES = PROJECT_ROOT / "patches"

_OLD = re.compile(rb"^(?:--- (?:a/)?|rename from |copy from )([^\t\r\n]+)", re.MULTILINE)
_NEW = re.compile(rb"^(?:\+\+\+ (?:b/)?|rename to |copy to )([^\t\r\n]+)", re.MULTILINE)
_GIT = re.compile(rb"^diff --git a/(\S+) b/(\S+)", re.MULTILINE)


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
        return tuple(_try(patch, scratch, tree) for patch in series)


def apply(series: Sequence[Patch], tree: Path) -> tuple[PatchStatus, ...]:
    """Put ``series`` on ``tree``, all of it or nothing; patches that are already there are left out.

    Raises :class:`PatchTargetMissing` or :class:`PatchFailed` before anything in ``tree`` changes.
    """
    with _scratch(series, tree) as scratch:
        found = tuple(_try(patch, scratch, tree) for patch in series)
        _refuse(found)
        for name in _touched(series):
            _take_over(scratch / name, tree / name)
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
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-patch-") as name:
        scratch = Path(name)
        for file in _touched(series):
            if (tree / file).is_file() or (tree / file).is_symlink():
                (scratch / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / file, scratch / file, follow_symlinks=False)
        yield scratch


def _touched(series: Sequence[Patch]) -> list[str]:
    return sorted({name for patch in series for name in (*_names(patch, _OLD), *_names(patch, _NEW))})


def _names(patch: Patch, pattern: re.Pattern[bytes]) -> list[str]:
    """File names that a patch mentions on its old or new side; refuses those that leave the tree."""
    data = patch.path.read_bytes()
    side = 0 if pattern is _OLD else 1
    raw = {m.strip() for m in pattern.findall(data)} | {pair[side] for pair in _GIT.findall(data)}
    names = sorted(n.decode("utf-8", "surrogateescape") for n in raw if n not in (b"/dev/null", b"dev/null"))
    for name in names:
        if name.startswith("/") or ".." in name.split("/"):
            raise PatchFailed(f"{patch.name} names {name!r}, which is outside the source tree")
    return names


def _try(patch: Patch, scratch: Path, tree: Path) -> PatchStatus:
    done = _git_apply(patch, scratch)
    if done.returncode == 0:
        return PatchStatus(patch=patch, state="applies")
    if _git_apply(patch, scratch, "--check", "--reverse").returncode == 0:
        return PatchStatus(patch=patch, state="already applied")
    created = set(_names(patch, _NEW)) - set(_names(patch, _OLD))
    missing = [n for n in _names(patch, _OLD) if not (scratch / n).exists() and n not in created]
    if missing and _needs_old(patch, missing):
        return PatchStatus(patch=patch, state="target missing", reason=_missing_reason(missing[0], tree))
    return PatchStatus(patch=patch, state="fails", reason=_line_ends(patch, scratch) or done.stderr.strip())


def _git_apply(patch: Patch, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """``git apply`` in a folder that git takes for no part of a repository."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent), "LC_ALL": "C"}
    environment.pop("GIT_DIR", None)
    command = ["git", "apply", "--whitespace=nowarn", *options, str(patch.path.resolve())]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _needs_old(patch: Patch, names: Sequence[str]) -> bool:
    """Whether one of ``names`` must exist before the patch: it is not one that the patch creates."""
    data = patch.path.read_bytes()
    created = {
        m.decode("utf-8", "surrogateescape")
        for m in re.findall(rb"^--- /dev/null\r?\n\+\+\+ (?:b/)?([^\t\r\n]+)", data, re.MULTILINE)
    }
    return any(name not in created for name in names)


def _missing_reason(name: str, tree: Path) -> str:
    parent = next(p for p in Path(name).parents if (tree / p).is_dir())
    inside = Path(name).relative_to(parent).parts[0]
    if parent != Path() and not any((tree / parent).iterdir()):
        return f"{name} is not there: {parent} is empty, a submodule that was not fetched"
    return f"{name} is not there: {parent}/ has no {inside}"


def _line_ends(patch: Patch, scratch: Path) -> str:
    """Why a patch fails when the cause is carriage returns on one side only (microsoft/vcpkg#442)."""
    in_patch = b"\r\n" in patch.path.read_bytes()
    files = [scratch / n for n in _names(patch, _OLD) if (scratch / n).is_file()]
    in_tree = any(b"\r\n" in file.read_bytes() for file in files)
    if in_patch and not in_tree:
        return "the patch has CRLF line ends, the source has LF: convert the patch (sed 's/\\r$//')"
    if in_tree and not in_patch:
        return "the source has CRLF line ends, the patch has LF: make the patch from this source"
    return ""


def _take_over(new: Path, target: Path) -> None:
    """Make ``target`` what the scratch copy is now, renamed in; a file that is gone there goes here."""
    if not new.exists() and not new.is_symlink():
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(new, beside, follow_symlinks=False)
    beside.replace(target)
