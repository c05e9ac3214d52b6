"""Does it run on my card? Answered over all libraries with device code, not by the best of them.

A process loads all of them, and one variable holds for all: an override that helps one library must not take away the
code of another.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rocm_wheels.gpu.cards import Card, Serving, card, serve
from rocm_wheels.inspect.model import Answer, Data, Inspection, Library, Verdict
from rocm_wheels.repair.providers import is_rocm, stem

# Libraries that are the same for several ROCm releases, of which the program loads one: libbitsandbytes_rocm64.so.
_VARIANT = re.compile(r"(?P<stem>.*_rocm)(?P<release>\d+)(?P<end>\.so|\..*\.so)$")
_ORDER = ("native", "generic", "override", "outside", "none", "empty")
# ROCm libraries with kernels of their own: from outside, it is for them to have code for the card.
_WITH_KERNELS = ("librocblas", "libhipblaslt", "libMIOpen", "librocfft", "librocrand", "librocsparse", "librocsolver")
_ABORTS = "rocBLAS"


def answer(inspection: Inspection, gfx: str) -> Answer:
    """Whether the wheel runs on ``gfx``, a target with or without features."""
    groups, common = _variants(inspection.device_libraries)
    if not groups:
        return _one(inspection, gfx, common)
    variants = [(label, _one(inspection, gfx, (*common, *libs))) for label, libs in groups]
    best = min((a for _, a in variants), key=lambda a: _ORDER.index(a.verdict))
    running = [label for label, a in variants if a.verdict == best.verdict]
    why = f"{best.why}; by the library for {', '.join(running)}" if best.verdict != "none" else best.why
    return replace(best, why=why, variants=tuple(variants))


def _variants(libraries: Sequence[Library]) -> tuple[list[tuple[str, tuple[Library, ...]]], tuple[Library, ...]]:
    """Libraries of which one is loaded, by ROCm release, and the others."""
    groups: dict[tuple[str, str], dict[str, Library]] = defaultdict(dict)
    for lib in libraries:
        if match := _VARIANT.fullmatch(lib.name):
            groups[match["stem"], match["end"]][match["release"]] = lib
    sets = [group for group in groups.values() if len(group) > 1]
    releases = sorted({release for group in sets for release in group}, key=lambda r: (r[0], int(r[1:] or 0)))
    found = [(f"rocm{release}", tuple(g[release] for g in sets if release in g)) for release in releases]
    alternatives = {lib.name for group in sets for lib in group.values()}
    return found, tuple(lib for lib in libraries if lib.name not in alternatives)


def _one(inspection: Inspection, gfx: str, libraries: Sequence[Library]) -> Answer:
    """The answer where all of ``libraries`` are loaded."""
    split = [lib.name for lib in libraries if lib.split]
    coded = [lib for lib in libraries if lib.name not in split and (lib.bundles or lib.broken)]
    best = _best(inspection, coded, gfx) if coded or inspection.data else _without_code(inspection, gfx)
    if not split or (coded and best.verdict == "none"):
        return best
    why = f"the device code of {', '.join(split)} lies in .kpack archives: the package with those for {gfx} decides"
    return Answer(gfx, "outside", best.variable, why, notes=best.notes)


def _best(inspection: Inspection, coded: Sequence[Library], gfx: str) -> Answer:
    """The answer without an override, or with the one that the card may take."""
    own = card(gfx)
    tries = [_try(inspection, coded, gfx, own)]
    if own.override and tries[0].verdict != "native":
        pretended = _try(inspection, coded, own.override.arch, card(own.override.arch))
        if pretended.verdict in ("native", "generic"):
            remedy = own.override
            why = f"{remedy.why} ({remedy.source})"
            tries.append(replace(pretended, gfx=gfx, verdict="override", variable=remedy.variable, why=why))
    best = min(tries, key=lambda a: _ORDER.index(a.verdict))
    if best.verdict == "none":
        return best
    seen = own.override.arch if own.override and best.verdict == "override" else gfx
    return replace(best, notes=tuple(_notes(inspection, coded, seen)))


def _without_code(inspection: Inspection, gfx: str) -> Answer:
    rocm = [n.library for n in inspection.needs if is_rocm(n.library) and n.provider != "wheel"]
    if rocm:
        why = "no GPU code inside; the ROCm that it finds decides"
        return Answer(gfx, "outside", "", f"{why}: {', '.join(sorted(set(rocm))[:6])}")
    if not inspection.libraries:
        return Answer(gfx, "empty", "", "pure Python or a placeholder: there is no compiled code in this wheel")
    if re.match(r"(rocm|hip)-", inspection.distribution) or inspection.rocm:
        why = "no GPU code inside and no need of a ROCm library by name: what it opens at run time decides"
        return Answer(gfx, "outside", "", why)
    nvidia = any(n.library.startswith(("libcuda", "libcudart", "libcublas")) for n in inspection.needs)
    return Answer(gfx, "none", "", f"no code for AMD GPUs and no need of ROCm: {'CUDA' if nvidia else 'CPU'} only")


def _try(inspection: Inspection, coded: Sequence[Library], gfx: str, own: Card) -> Answer:
    """The answer without an override."""
    lacking: list[tuple[str, str]] = []
    servings: list[Serving] = []
    for lib in coded:
        found, problem = _serving(lib, gfx)
        servings += found
        if problem:
            lacking.append((lib.name, problem))
    lacking += _without_data(inspection.data, own, alone=not coded)
    variables = {s.variable for s in servings}
    if len(variables) > 1:
        wanted = max(variables)  # HSA_XNACK=1; code that says nothing of XNACK runs with it too
        again = _try(inspection, coded, f"{gfx}:xnack+", own)
        if again.verdict != "none":
            return replace(again, gfx=gfx, variable=wanted)
        lacking.append(("", f"one library needs {wanted}, another does not run with it"))
    if lacking:
        files = len({name for name, _ in lacking})
        why = f"{files} of {len(coded)} files with GPU code have none for it" if coded else lacking[0][1]
        return Answer(gfx, "none", "", why if files > 1 else lacking[0][1], tuple(lacking))
    kind: Verdict = "generic" if any(s.kind == "generic" for s in servings) else "native"
    reasons = dict.fromkeys(s.why for s in servings)
    return Answer(gfx, kind, next(iter(variables), ""), "; ".join(reasons) or "its data files are for it")


def _serving(lib: Library, gfx: str) -> tuple[list[Serving], str]:
    """How each of the library's bundles serves ``gfx``, and why one does not."""
    if lib.broken:
        return [], lib.broken
    sets = {bundle.archs: sum(b.archs == bundle.archs for b in lib.bundles) for bundle in lib.bundles}
    found = {archs: serve(gfx, sorted(archs)) for archs in sorted(sets, key=sorted)}
    bad = {archs: s for archs, s in found.items() if s.kind not in ("native", "generic")}
    if not bad:
        return list(found.values()), ""
    count, worst = sum(sets[archs] for archs in bad), next(iter(bad.values()))
    why = f"no code for {gfx}, only for {worst.arch}" if worst.kind == "override" else worst.why
    part = f"{count} of {len(lib.bundles)} bundles: " if count < len(lib.bundles) else ""
    return [], part + why


def _without_data(data: Sequence[Data], own: Card, *, alone: bool) -> Iterator[tuple[str, str]]:
    """rocBLAS ends the process when it has files for other targets only; the others do without.

    ``alone``: the wheel has nothing but data files, so that those of any component decide.
    """
    named = {d.arch for d in data if d.arch}
    if alone and not {own.gfx, own.generic} & named:
        yield "data files", f"they are for {', '.join(sorted(named)) or 'every GPU'}, none is for {own.gfx}"
        return
    of_blas = {d.arch for d in data if d.component == _ABORTS and d.arch}
    if of_blas and not {own.gfx, own.generic} & of_blas:
        yield _ABORTS, f"rocBLAS has data for {', '.join(sorted(of_blas))} and none for {own.gfx}: it ends the process"
    for each in data:
        if each.component == _ABORTS and each.arch in ("", own.gfx) and each.empty:
            yield each.empty[0], "the data file is empty"


def _notes(inspection: Inspection, coded: Sequence[Library], gfx: str) -> Iterator[str]:
    own = card(gfx)
    by_component: dict[str, set[str]] = defaultdict(set)
    for each in inspection.data:
        by_component[each.component].add(each.arch)
    for component, archs in sorted(by_component.items()):
        if component != _ABORTS and archs - {""} and not archs & {own.gfx, own.generic}:
            yield f"{component} has no files for {own.gfx}: that component is slower or missing there"
    outside = {n.library for n in inspection.needs if stem(n.library) in _WITH_KERNELS and n.provider != "wheel"}
    if outside:
        yield f"{', '.join(sorted(outside))} come from outside and must serve {own.gfx} too"
    for lib in coded:
        kernels = [b.archs for b in lib.embedded]
        if kernels and not any(serve(gfx, archs).runs for archs in kernels):
            yield f"{posixpath.basename(lib.name)} carries {len(kernels)} further kernels as data, none for {own.gfx}"
