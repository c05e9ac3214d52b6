"""Whether a set of wheels can be installed from its index alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, NormalizedName, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from rocm_wheels.errors import UnmetDependency, UsageError
from rocm_wheels.publish.dist import Dist


def check_closure(dists: Sequence[Dist], filenames: Callable[[NormalizedName], tuple[str, ...]]) -> tuple[str, ...]:
    """Check every ``Requires-Dist`` against the set and the index; returns warnings.

    A name that the set or the index has, but in no version that is accepted, raises :class:`UnmetDependency`: pip would
    go and look for another one elsewhere, which is how ROCm wheels get swapped for public ones. A name that neither has
    is a warning, since the colleague may have it installed. Requirements that only an extra asks for are left out.
    """
    own: dict[NormalizedName, set[Version]] = {}
    for dist in dists:
        own.setdefault(dist.name, set()).add(dist.version)
    needed = {
        (str(requirement), dist.filename): requirement
        for dist in dists
        for requirement in dist.requires
        if not _only_for_extra(requirement)
    }
    absent: dict[str, set[str]] = {}
    listed: dict[NormalizedName, set[Version]] = {}
    for (text, filename), requirement in sorted(needed.items()):
        name = canonicalize_name(requirement.name)
        if name not in listed:
            listed[name] = {v for f in filenames(name) if (v := _version(f)) is not None}
        versions = own.get(name, set()) | listed[name]
        if not versions:
            absent.setdefault(name, set()).add(text)
        elif not any(requirement.specifier.contains(v, prereleases=True) for v in versions):
            raise UnmetDependency(
                f"{filename} requires {text}, but the set and the index only have "
                f"{name} {', '.join(str(v) for v in sorted(versions))}",
                remedy=f"publish a {name} that fits in the same call, or build the wheel against the one that is there",
            )
    if not absent:
        return ()
    names = ", ".join(sorted(absent))
    return (f"the index is not closed: it has no {names}; `invoke wheelhouse` adds them",)


def _only_for_extra(requirement: Requirement) -> bool:
    return requirement.marker is not None and "extra" in str(requirement.marker)


def _version(filename: str) -> Version | None:
    try:
        return parse_wheel_filename(filename)[1]
    except InvalidWheelFilename:
        return None


def also_public(dists: Sequence[Dist], listed: str) -> list[str]:
    """Warnings for names that the file ``listed`` has too: whoever asks both indexes may get the other's files.

    The file has a name per line, as an operator saves a public index's list; without one there is nothing to compare.
    Raises :class:`UsageError` for a file that cannot be read.
    """
    if not listed:
        return []
    try:
        public = {canonicalize_name(line.strip()) for line in Path(listed).read_text("utf-8").splitlines()}
    except OSError as error:
        raise UsageError(f"the list of public names {listed} cannot be read: {error.strerror}") from error
    return [
        f"{name} is a name of the public index too: asked beside this one, it may win with a higher version; "
        "`invoke consume` writes a configuration with one index and hashes"
        for name in sorted({dist.name for dist in dists} & public)
    ]
