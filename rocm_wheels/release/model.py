"""What a row of the release data says. Plain facts; nothing here reads a file or decides anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from rocm_wheels.errors import Impossible
from rocm_wheels.release.facts import Facts

SourceKind = Literal["git", "archive", "debian", "directory"]


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One file to fetch: ``urls`` are tried in order, ``sha256`` decides; unpacked at ``into`` inside the tree."""

    urls: tuple[str, ...]
    sha256: str
    into: str = "."


@dataclass(frozen=True, kw_only=True)
class Submodule:
    """A submodule as a lock records it: path in the whole tree, address, commit and the tree of that commit."""

    path: str
    url: str
    commit: str
    tree: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the pinned source of a release comes from.

    ``git``: ``url`` and the full ``commit`` (40 hex digits). ``archive``: ``archives``. ``debian``: source
    ``package``, exact ``version``, ``suite`` and the ``sha256`` of its .dsc; the original archives are unpacked,
    Debian's own patches are not applied; ``parts`` are directories of the packaging archive by their place in the tree.
    ``directory``: ``path`` inside this project.
    """

    kind: SourceKind
    url: str = ""
    commit: str = ""
    archives: tuple[Archive, ...] = ()
    package: str = ""
    version: str = ""
    suite: str = ""
    sha256: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    path: str = ""
    origin: str = "unknown"
    submodules: tuple[Submodule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one release is built. Commands are argv lists run in the source tree with ``python`` = the build Python.

    ``env`` is set for every command; ``required_cache`` maps CMake cache entries to the value that they must have
    after configure; ``canary_target`` is the CMake target of the smallest HIP library and ``canary_library`` its
    path below ``build/``; ``required_files`` are members that a ROCm wheel must have, ``hip_libraries`` those of
    them that must carry device code.
    """

    hipify: tuple[str, ...]
    configure: tuple[str, ...]
    wheel: tuple[str, ...]
    canary_target: str
    canary_library: str
    required_files: tuple[str, ...]
    hip_libraries: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    required_cache: tuple[tuple[str, str], ...] = ()
    unused_variables_allowed: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a build was measured to take: steps of C++, of them with Python's headers, and of HIP; their mean seconds on
    one core, HIP's per target; GB of the largest compiler and of a finished tree. ``origin`` says where and when.
    """

    cxx_steps: int
    cxx_seconds: float
    python_steps: int
    hip_steps: int
    hip_seconds: float
    job_memory: float
    disk: float
    origin: str


@dataclass(frozen=True, kw_only=True)
class Image:
    """A builder image: its Dockerfile, base, and the ROCm and Pythons that it carries.

    ``compiles`` are the targets that both its compiler and its device libraries know, ``rocblas`` those that its
    rocBLAS has kernels for; empty means that nobody read them inside the image. ``suite`` is Debian's name of a base
    that an apt mirror can make, "" for any other base; with ``stale_ok`` it moves, and an index past its date is taken.
    ``gigabytes`` is the size of the image.
    """

    name: str
    dockerfile: str
    base: str
    suite: str
    rocm: str
    rocm_path: str
    glibc: str
    pythons: tuple[str, ...]
    origin: str
    compiles: tuple[str, ...] = ()
    rocblas: tuple[str, ...] = ()
    stale_ok: bool = False
    gigabytes: float = 8.0

    def can_compile(self, arch: str) -> bool:
        """Whether ``arch`` is among the targets of its compiler; any may be when nobody read them."""
        return not self.compiles or arch.partition(":")[0] in self.compiles


@dataclass(frozen=True, kw_only=True)
class OtherWheel:
    """A wheel of another framework that is only repaired and judged here; ``rocm`` is the window that it needs.

    ``versions`` says which of the ``distribution`` are meant. An empty ``rocm`` is unknown, for the reason in
    ``unknown``.
    """

    framework: str
    distribution: str
    versions: str
    rocm: str = ""
    source: str = ""
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class Build:
    """How a release is built in some images: from which source and by which recipe; ``origin`` says what was tried."""

    images: tuple[str, ...]
    source: Source
    recipe: Recipe
    origin: str
    cost: Cost | None = None


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release of a framework: ``distribution`` is the wheel's name, ``package`` the import name.

    ``source`` and ``recipe`` are those of the first of ``builds``; :meth:`on` gives those of an image. ``facts`` is
    None for a framework without a page of facts.
    """

    framework: str
    version: str
    distribution: str
    package: str
    pythons: tuple[str, ...]
    archs: tuple[str, ...]
    source: Source
    recipe: Recipe
    origin: str
    builds: tuple[Build, ...] = ()
    facts: Facts | None = None
    cost: Cost | None = None

    @property
    def name(self) -> str:
        """``framework-version``, the name under which trees, patches and wheels of the release are kept."""
        return f"{self.framework}-{self.version}"

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the images that the release builds in."""
        return tuple(image for build in self.builds for image in build.images)

    def on(self, image: Image) -> Release:
        """The release as ``image`` builds it: its source, recipe and those default targets that it can compile.

        Raises :class:`Impossible` when there is no row for it.
        """
        for build in self.builds:
            if image.name in build.images:
                default = self.facts.archs_for(image.rocm) if self.facts else self.archs
                archs = tuple(arch for arch in default if image.can_compile(arch))
                return replace(
                    self,
                    source=build.source,
                    recipe=build.recipe,
                    archs=archs,
                    origin=build.origin,
                    cost=build.cost,
                )
        raise Impossible(
            f"{self.name} has no recipe for image {image.name}",
            remedy=f"it builds in: {', '.join(self.images) or 'no image of this project yet'}",
        )
