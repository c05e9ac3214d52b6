"""Is it the build that was asked for? Checks between the stages; each lists all that is wrong, then raises.

A CPU build never passes as ROCm: CMake turns USE_ROCM off without an error when a package is missing, and keeps an
old arch list from its cache (pytorch#44250, ROCm/TheRock#332, cases where a green build held no device code).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rocm_wheels.build.plan import BuildPlan
from rocm_wheels.elf import ElfFile, offload
from rocm_wheels.errors import CompileRejected, ConfigureRejected
from rocm_wheels.release import Recipe
from rocm_wheels.wheel import WheelArchive

_OFFLOAD_ARCH = re.compile(r"--offload-arch=(gfx[0-9a-z-]+(?::[a-z]+[+-])*)")
_CACHE_ENTRY = re.compile(r"^([^:#/\s][^:]*):[A-Z]+=(.*)$", re.MULTILINE)
_UNUSED = re.compile(r"Manually-specified variables were not used by the project:\s*\n\s*\n((?:[ \t]+\S+[ \t]*\n)+)")
_ON = {"1", "ON", "YES", "TRUE", "Y"}


def check_configure(plan: BuildPlan, log: str) -> None:
    """Raise :class:`ConfigureRejected` unless CMake's cache, arch flags and ``log`` are what the recipe demands."""
    build = plan.source / "build"
    recipe = plan.release.recipe
    try:
        cache = dict(_CACHE_ENTRY.findall((build / "CMakeCache.txt").read_text("utf-8", "replace")))
    except OSError as error:
        raise ConfigureRejected(f"configure left no CMake cache: {error}") from error
    problems = [*_cache_problems(cache, recipe), *_arch_problems(build, plan.archs), *_unused_problems(log, recipe)]
    if problems:
        raise ConfigureRejected(
            "CMake configured another build than the one asked for:\n  - " + "\n  - ".join(problems),
            remedy=f"the packages that CMake looked for are in {plan.tree / 'logs' / 'configure.log'}; "
            "a ROCm component that is not found turns features off",
        )


def _cache_problems(cache: dict[str, str], recipe: Recipe) -> Iterator[str]:
    for name, wanted in recipe.required_cache:
        found = cache.get(name)
        if found is None:
            yield f"{name} is not in the CMake cache, {wanted} is required"
        elif not _same_value(found, wanted):
            yield f"{name} is {found!r}, {wanted!r} is required"


def _same_value(found: str, wanted: str) -> bool:
    if wanted.upper() in _ON:
        return found.upper() in _ON
    return found == wanted


def _arch_problems(build: Path, archs: Iterable[str]) -> Iterator[str]:
    found = {arch for text in _generated_files(build) for arch in _OFFLOAD_ARCH.findall(text)}
    wanted = set(archs)
    if missing := sorted(wanted - found):
        yield f"no compile command carries --offload-arch for {', '.join(missing)}"
    if extra := sorted(found - wanted):
        yield f"compile commands carry --offload-arch for {', '.join(extra)}, which nobody asked for"


def _generated_files(build: Path) -> Iterator[str]:
    """build.ninja and the scripts that FindHIP writes per object; the arch flags are in one or the other."""
    for path in (build / "build.ninja", *build.rglob("*.hip.o.cmake*"), *build.rglob("*.hip.o.*cmake")):
        if path.is_file():
            yield path.read_text("utf-8", "replace")


def _unused_problems(log: str, recipe: Recipe) -> Iterator[str]:
    for block in _UNUSED.findall(log):
        for name in block.split():
            if name not in recipe.unused_variables_allowed:
                yield f"the project does not know the variable {name}: renamed or misspelt, so it had no effect"


def check_compile(plan: BuildPlan) -> None:
    """Raise :class:`CompileRejected` unless the HIP libraries in ``build/lib`` hold code for every arch."""
    build = plan.source / "build" / "lib"
    problems: list[str] = []
    for member in plan.release.recipe.hip_libraries:
        path = build / Path(member).name
        if not path.is_file():
            problems.append(f"{path.name} was not built")
        else:
            problems += _device_problems(path.name, path.read_bytes(), plan.archs)
    _reject(problems, plan)


def check_wheel(plan: BuildPlan, wheel: Path) -> None:
    """Raise :class:`CompileRejected` unless ``wheel`` has the required files, device code and version."""
    recipe = plan.release.recipe
    with WheelArchive.open(wheel) as archive:
        names = {member.name for member in archive.members}
        problems = [f"{wheel.name} has no {name}" for name in recipe.required_files if name not in names]
        for name in recipe.hip_libraries:
            if name in names:
                problems += _device_problems(name, archive.read(name), plan.archs)
        if str(archive.version) != plan.version:
            problems.append(f"{wheel.name} says version {archive.version}, {plan.version} was asked for")
    _reject(problems, plan)


def _device_problems(name: str, data: bytes, archs: Iterable[str]) -> Iterator[str]:
    elf = ElfFile.parse(data, name)
    if not any(needed.startswith("libamdhip64.so") for needed in elf.needed):
        yield f"{name} does not need libamdhip64: it is a CPU library"
    bundles = offload.read_bundles(elf)
    if not bundles:
        yield f"{name} holds no device code (.hip_fatbin is empty or missing)"
        return
    for arch in archs:
        if lacking := sum(arch not in bundle.archs for bundle in bundles):
            yield f"{name}: {lacking} of {len(bundles)} offload bundles have no code for {arch}"


def _reject(problems: list[str], plan: BuildPlan) -> None:
    if problems:
        raise CompileRejected(
            f"this is not a {plan.release.name} build for {';'.join(plan.archs)}:\n  - " + "\n  - ".join(problems),
            remedy=f"the compiler's output is in {plan.tree / 'logs' / 'compile.log'}",
        )
