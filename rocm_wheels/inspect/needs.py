"""Who gives the libraries that the files of a wheel need, looked for as the loader would."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from rocm_wheels.inspect.model import Library, Need, Provider
from rocm_wheels.repair.contracts import DRIVERS, PROVIDERS
from rocm_wheels.repair.providers import is_rocm, is_torch
from rocm_wheels.wheel.tags import system_libraries

# Packages that an RPATH may lead to, below site-packages (nvidia/cublas/lib, _rocm_sdk_core/lib), or ROCm itself.
_ROCM_PLACE = re.compile(r"(?:\.\./)*(_rocm_sdk_\w+|_rocm_layers_\w+)|(/opt/rocm.*)")
_NVIDIA_PLACE = re.compile(r"(?:\.\./)*(nvidia)/|(/usr/local/cuda.*)")
_PYTHON = re.compile(r"libpython3\.\d+t?\.so(\.\d+)*")


def wheel_needs(libraries: Iterable[Library], requires: Iterable[str], external: Iterable[str]) -> tuple[Need, ...]:
    """One row per needed library and provider. ``requires`` and ``external`` are the lines of METADATA."""
    files = {lib.name: lib for lib in libraries}
    context = _Context(files, _distributions(requires), frozenset(external))
    rows: dict[tuple[str, Provider], dict[str, list[str]]] = defaultdict(dict)
    for lib in files.values():
        for name in lib.needed:
            provider, *where = context.provider(name, lib)
            rows[name, provider][lib.name] = where
    return tuple(
        Need(name, provider, ", ".join(dict.fromkeys(w for where in found.values() for w in where)), tuple(found))
        for (name, provider), found in sorted(rows.items())
    )


def _distributions(requires: Iterable[str]) -> frozenset[str]:
    """Names of the distributions that are always installed along."""
    found = set()
    for line in requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if "extra" not in str(requirement.marker or ""):
            found.add(canonicalize_name(requirement.name))
    return frozenset(found)


class _Context:
    """What is the same for every need of one wheel."""

    def __init__(self, files: Mapping[str, Library], distributions: frozenset[str], external: frozenset[str]) -> None:
        self.files = files
        self.distributions = distributions
        self.external = external
        self.by_name = {posixpath.basename(member): member for member in sorted(files, reverse=True)}

    def provider(self, name: str, lib: Library) -> tuple[Provider, *tuple[str, ...]]:
        """Who gives ``name`` to ``lib``, and the places that say so."""
        entries = [e.replace("${ORIGIN}", "$ORIGIN") for e in lib.search_path.split(":") if e]
        here = posixpath.dirname(lib.name)
        places = [_place(here, entry) for entry in entries]
        for place in places:
            if (member := posixpath.normpath(posixpath.join(place, name))) in self.files:
                return "wheel", member
        if name in self.by_name:
            return "unreachable", self.by_name[name]
        if name in system_libraries():
            return ("system",)
        if name in DRIVERS:
            return "system", "the NVIDIA driver"
        if _PYTHON.fullmatch(name):
            return "python", "the interpreter's own library"
        if name in self.external:
            return "declared", "Requires-External"
        return self._from_others(name, places)

    def _from_others(self, name: str, places: list[str]) -> tuple[Provider, *tuple[str, ...]]:
        if is_torch(name) and "torch" in self.distributions:
            return "distribution", "torch"
        if brought := {"nvidia-*" if d.startswith("nvidia-") else d for d in self.distributions if _brings(d, name)}:
            return "distribution", *sorted(brought)
        kind = _ROCM_PLACE if is_rocm(name) else _NVIDIA_PLACE if _brings("cuda-toolkit", name) else None
        if kind and (found := [m[1] or m[2] for place in places if (m := kind.match(place))]):
            return "rpath", *found
        if not is_rocm(name):
            return ("unknown",)
        if "torch" in self.distributions:
            return "distribution", "torch, if that is a ROCm build which brings its own"
        return "rocm", "a ROCm that the loader knows of"


def _brings(distribution: str, library: str) -> bool:
    """Whether the distribution is known to bring the library; of torch it depends on the build whether it has ROCm."""
    return any(
        re.fullmatch(p.libraries, library) or (p.rocm and distribution != "torch" and is_rocm(library))
        for p in PROVIDERS
        if re.fullmatch(p.distributions, distribution)
    )


def _place(here: str, entry: str) -> str:
    """Where an entry of a search path leads: below site-packages, or absolute as it stands."""
    if not entry.startswith("$ORIGIN"):
        return entry
    return posixpath.normpath(posixpath.join(here, entry.removeprefix("$ORIGIN").strip("/")))
