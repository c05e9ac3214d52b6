"""Device code per GPU target: the intersection over bundles counts, not the union."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rocm_wheels.gpu.cards import card
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.elves import ElfFacts
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject


def coverage(subject: Subject) -> Iterator[Finding]:
    """Every bundle of every library can be read, is what it says, and serves the targets asked for."""
    for member, elf in subject.elves.items():
        if elf.broken_code:
            yield finding("bundle-broken", member, elf.broken_code)
        if elf.bundles:
            yield from _targets(elf)
            yield from _archs(elf, subject.options.archs)
        if elf.split and not any(n.endswith(".kpack") for s in (subject, *subject.companions) for n in s.content):
            yield finding("split-device-code", member, "its code is in .kpack archives, none is in the wheel")


def _targets(elf: ElfFacts) -> Iterator[Finding]:
    for bundle in elf.bundles:
        for entry in bundle.entries:
            if not entry.is_true:
                where = f"bundle at {bundle.offset:#x} of {bundle.section}"
                evidence = f"{where}: {entry.target} is code for {entry.flagged}"
                yield finding("bundle-target", elf.name, evidence, offset=bundle.offset, symbol=entry.target)


def _archs(elf: ElfFacts, wanted: Collection[str]) -> Iterator[Finding]:
    loaded = [b for b in elf.bundles if b.section != ".rodata"] or list(elf.bundles)
    for arch in wanted:
        lacking = [b for b in loaded if not serves(b.archs, arch)]
        if lacking:
            has = ", ".join(sorted(lacking[0].archs)) or "none"
            evidence = f"{len(lacking)} of {len(loaded)} bundles have no code for {arch}, the first of them has {has}"
            yield finding("arch-missing", elf.name, evidence, offset=lacking[0].offset, symbol=arch)
    somewhere = frozenset[str]().union(*(b.archs for b in loaded))
    everywhere = frozenset.intersection(*(b.archs for b in loaded))
    if uneven := sorted(somewhere - everywhere - set(wanted)):
        yield finding("arch-uneven", elf.name, f"only some of {len(loaded)} bundles have code for {', '.join(uneven)}")


def serves(archs: Collection[str], wanted: str) -> bool:
    """Whether code for ``archs`` runs on every GPU that ``wanted`` means: itself, both its variants, or its generic."""
    processor, _, features = wanted.partition(":")
    if wanted in archs or processor in archs or card(processor).generic in archs:
        return True
    return not features and {f"{processor}:xnack+", f"{processor}:xnack-"} <= set(archs)
