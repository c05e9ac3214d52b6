"""Decides a repair: reads the wheel and the machine, writes nothing."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.elf.patch import Edit
from rocm_wheels.errors import NothingToRepair, PlatformImpossible, SameResult, UnusedExclude, UsageError
from rocm_wheels.repair.contracts import BY_NAME, SYSTEM, Contract, Contracts, chosen, rocm_range
from rocm_wheels.repair.facts import ElfFacts, has_elf, wheel_facts
from rocm_wheels.repair.graft import DEFAULT_LIB_DIRS, Closure, Found, closure, data_files, data_notes, origin
from rocm_wheels.repair.model import ElfPlan, Graft, Need, RepairOptions, RepairPlan
from rocm_wheels.repair.providers import SDK_LAYOUTS, TORCH_LAYOUT, is_rocm, rocm_major
from rocm_wheels.repair.rpath import search_path
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.metadata import file_name, headers, retagged
from rocm_wheels.wheel.tags import Measured, blockers, find_policy, measure, policies, system_libraries

_NOTHING = Edit()
_SYSTEM = "every manylinux system has it"


def plan_repair(wheel: Path, options: RepairOptions, *, memory_mib: int = 512) -> RepairPlan:
    """The plan for ``wheel``; reading it holds at most about ``memory_mib``.

    Raises :class:`NothingToRepair` for a wheel without ELF files, :class:`LibraryMissing` for a need that nothing
    satisfies, :class:`PlatformImpossible` for a tag that the files forbid, :class:`UnusedExclude` for an exclude that
    matches nothing, and the errors of reading.
    """
    options = replace(options, lib_dirs=options.lib_dirs or DEFAULT_LIB_DIRS)
    with WheelArchive.open(wheel) as archive:
        promises = options.mode != "retag" or options.plat != policies()[-1].tag
        elves = wheel_facts(archive, memory_mib) if promises else {}
        if not elves and (promises or not has_elf(archive)):
            raise NothingToRepair(f"{wheel.name} holds no compiled code", remedy="publish it as it is")
        return _Planner(archive, elves, options).plan()


def check_results(plans: Iterable[RepairPlan]) -> None:
    """Raise :class:`SameResult` when two plans would write one file: the later would take the place of the earlier."""
    taken: dict[str, Path] = {}
    for plan in plans:
        if plan.name in taken:
            raise SameResult(
                f"{taken[plan.name]} and {plan.wheel} would both become {plan.name}", remedy="repair one of them"
            )
        taken[plan.name] = plan.wheel


class _Planner:
    """Holds what the steps of one plan share; its methods are those steps."""

    def __init__(self, archive: WheelArchive, elves: dict[str, ElfFacts], options: RepairOptions) -> None:
        self.archive = archive
        self.elves = elves
        self.options = options
        self.by_name = {posixpath.basename(member): member for member in sorted(elves, reverse=True)}
        self.renamed = _renamed(elves, self.by_name)
        self.libdir = _library_directory(elves, archive)
        self.grafted = Closure({}, ())
        needed = [name for facts in elves.values() for name in facts.needed if is_rocm(name)]
        self.rocm = rocm_range(needed, (facts.verneed for facts in elves.values()))
        self.requires = chosen(options.requires, rocm_major(needed)) if options.requires else ()
        required = (*headers(archive.metadata, "Requires-Dist"), *self.requires)
        self.contracts = Contracts(required, self.rocm)

    def plan(self) -> RepairPlan:
        options = self.options
        self._check_excludes()
        if options.mode in ("thin", "fat"):
            self.grafted = closure(self._missing(), options.lib_dirs, self._is_outside)
        grafted = {f"{self.libdir}/{name}": library for name, library in self.grafted.found.items()}
        elves = [self._elf_plan(member, facts) for member, facts in self.elves.items()]
        elves += [self._graft_plan(member, library.facts) for member, library in grafted.items()]
        grafts = tuple(Graft(member, library.path, *origin(library.path)) for member, library in grafted.items())
        data = [(library, data_files(library, self.libdir, options.archs)) for library in self._with_data()]
        notes = [note for library, files in data for note in data_notes(library, files, options.archs)]
        measured = self._measure(elves, [replace(found.facts, name=member) for member, found in grafted.items()])
        platforms = self._platforms(measured)
        outside = sorted({n.name for e in elves for n in e.needs if n.provider == "outside"})
        contracts = self._contracts(outside)
        return RepairPlan(
            wheel=self.archive.path,
            mode=options.mode,
            package=self.libdir.partition("/")[0],
            elves=tuple(elves),
            grafts=grafts,
            data=tuple(sorted({g for _, files in data for g in files}, key=lambda g: g.member)),
            measured=measured,
            tags=(tags := retagged(self.archive.tags, platforms)),
            retags=tuple(headers(self.archive.wheel_file, "Tag")) != tags,
            name=file_name(self.archive.path.name, platforms),
            requires_external=self._requires_external(contracts),
            requires_dist=self._requires_dist(),
            contracts=contracts,
            recorded=True,
            anatomies={member: f.anatomy for member, f in self.elves.items() if f.anatomy},
            notes=(*self.grafted.notes, *notes, *self._notes(outside, grafts)),
        )

    def _with_data(self) -> list[Found]:
        """What is grafted and may read data; a thin wheel leaves ROCm's data outside with ROCm."""
        return list(self.grafted.found.values()) if self.options.mode == "fat" else []

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.options.exclude)

    def _is_outside(self, name: str) -> bool:
        """Whether another package or the system has to bring ``name``."""
        if name in self.by_name or name in self.renamed:
            return False
        if self._is_excluded(name):
            return True
        contract = self.contracts.of(name)
        if contract is None:
            return False
        return self.options.mode != "fat" or contract.provider != SYSTEM

    def _missing(self) -> dict[str, str]:
        """Needs that the wheel does not satisfy itself, with a file that has them."""
        return {
            posixpath.basename(name): member
            for member, facts in self.elves.items()
            for name in facts.needed
            if posixpath.basename(name) not in self.by_name and name not in self.renamed
        }

    def _check_excludes(self) -> None:
        if self.options.mode == "retag":
            return
        needed = {name for facts in self.elves.values() for name in facts.needed}
        for pattern in self.options.exclude:
            if not any(fnmatch.fnmatchcase(name, pattern) for name in needed):
                raise UnusedExclude(
                    f"--exclude {pattern}: nothing in {self.archive.path.name} needs it",
                    remedy=f"needed from outside are: {', '.join(sorted(n for n in needed if n not in self.by_name))}",
                )

    def _need(self, name: str) -> Need:
        if name in self.renamed:
            return Need(name, "wheel", self.renamed[name])
        name = posixpath.basename(name)  # a need by path becomes one by name
        if name in self.by_name:
            return Need(name, "wheel", self.by_name[name])
        if name in self.grafted.found:
            return Need(name, "graft", f"{self.libdir}/{name}")
        if name in system_libraries():
            return Need(name, "system", _SYSTEM)
        return Need(name, "outside", str(self._contract(name)))

    def _elf_plan(self, member: str, facts: ElfFacts) -> ElfPlan:
        needs = tuple(self._need(name) for name in facts.needed)
        if self.options.mode == "retag":
            return ElfPlan(member, needs, None, (), facts.search_path)
        edit, reasons = self._rpath_edit(member, needs, facts, force=self.options.mode == "fat")
        edit, why = self._names(member, facts, edit)
        reasons += why
        if facts.stack_executable and not self.options.keep_stack:
            edit = replace(edit, clear_stack=True)
            reasons.append("executable stack: glibc 2.41 refuses to load it")
        return self._planned(member, needs, facts, edit, reasons)

    def _names(self, member: str, facts: ElfFacts, edit: Edit) -> tuple[Edit, list[str]]:
        """Needs by a SONAME that is no file name, or by a path: the loader looks for files, so they take its name."""
        names = {n: posixpath.basename(self.renamed.get(n, n)) for n in facts.needed}
        swaps = tuple((old, new) for old, new in names.items() if old != new)
        reasons = [f"needs {old}, which is called {new} in the wheel" for old, new in swaps]
        if swaps:
            edit = replace(edit, replace_needed=swaps)
        if facts.soname in self.renamed and self.renamed[facts.soname] == member:
            edit = replace(edit, soname=posixpath.basename(member))
            reasons.append(f"SONAME {facts.soname} is not its file name")
        return edit, reasons

    def _graft_plan(self, member: str, facts: ElfFacts) -> ElfPlan:
        needs = tuple(self._need(name) for name in facts.needed)
        edit, reasons = self._rpath_edit(member, needs, facts, force=self.options.mode == "fat")
        opens = any(name in self.grafted.found for name in facts.opens)
        if opens and not edit.rpath and not facts.search_path:
            edit = Edit(rpath="$ORIGIN", force_rpath=self.options.mode == "fat")
        if facts.stack_executable and not self.options.keep_stack:
            edit = replace(edit, clear_stack=True)
        return self._planned(member, needs, facts, edit, ["grafted", *reasons])

    @staticmethod
    def _planned(member: str, needs: tuple[Need, ...], facts: ElfFacts, edit: Edit, reasons: list[str]) -> ElfPlan:
        rpath = facts.search_path if edit.rpath is None else edit.rpath
        return ElfPlan(member, needs, None if edit == _NOTHING else edit, tuple(reasons), rpath)

    def _rpath_edit(
        self, member: str, needs: Sequence[Need], facts: ElfFacts, *, force: bool
    ) -> tuple[Edit, list[str]]:
        outside = [n.name for n in needs if n.provider == "outside"]
        layouts = [TORCH_LAYOUT] if any(self._contract(n).provider == "torch" for n in outside) else []
        rocm = self.options.mode != "fat" and any(map(is_rocm, outside))
        found = facts.search_path
        wanted = search_path(
            member,
            needs,
            found,
            folders={posixpath.dirname(m) for m in self.elves} | ({self.libdir} if self.grafted.found else set()),
            layouts=[*layouts, *(SDK_LAYOUTS if rocm else ())],
            absolute=self.options.absolute if rocm else (),
        )
        if wanted != found:
            return Edit(rpath=wanted, force_rpath=force), [f"RPATH {found!r} → {wanted!r}"]
        inside = any(n.provider in ("wheel", "graft") for n in needs)
        if force and inside and not facts.has_rpath:
            return Edit(rpath=wanted, force_rpath=True), ["RUNPATH → RPATH, so that LD_LIBRARY_PATH cannot win"]
        return _NOTHING, []

    def _measure(self, plans: Iterable[ElfPlan], grafted: Sequence[ElfFacts]) -> Measured:
        """The tag of all files; what comes from outside by contract does not count, what nobody brings does."""
        elves = (*self.elves.values(), *grafted)
        if not elves:  # a tag that promises nothing is wished for: nothing was read
            return Measured(policies()[-1], ())
        elsewhere = {n.name for plan in plans for n in plan.needs if n.provider in ("wheel", "graft")}
        elsewhere |= {name for facts in elves for name in facts.needed if self._is_outside(name)}
        measured = measure(elves, elsewhere)
        wish = self.options.plat
        if not wish or wish == policies()[-1].tag:
            return measured
        policy = find_policy(wish)
        if policy is None:
            known = sorted(tag for p in policies() for tag in p.tags)
            raise UsageError(f"{wish!r} is no platform tag that auditwheel knows", remedy=f"known: {', '.join(known)}")
        found = blockers(policy, elves, elsewhere)
        if found:
            listed = "\n  - ".join(map(str, found[:8]))
            system = f", for example {policy.system}" if policy.system else ""
            raise PlatformImpossible(
                f"{self.archive.path.name} cannot be {wish}; {len(found)} needs forbid it:\n  - {listed}",
                remedy=f"{measured.policy.tag} holds; for {wish} build on a system as old as it{system}",
            )
        return measured

    def _platforms(self, measured: Measured) -> tuple[str, ...]:
        if self.options.mode == "rpath":
            return tuple(self.archive.path.name.removesuffix(".whl").rpartition("-")[2].split("."))
        if self.options.plat:
            return (self.options.plat,)
        return (measured.policy.tag,)

    def _contract(self, name: str) -> Contract:
        return self.contracts.of(name) or Contract("the system or another wheel", "", BY_NAME)

    def _contracts(self, outside: Sequence[str]) -> tuple[tuple[Contract, tuple[str, ...]], ...]:
        """Who brings what is ``outside``."""
        found: dict[Contract, list[str]] = {}
        for name in outside:
            found.setdefault(self._contract(name), []).append(name)
        return tuple((contract, tuple(names)) for contract, names in sorted(found.items()))

    def _requires_external(self, contracts: Sequence[tuple[Contract, tuple[str, ...]]]) -> tuple[str, ...]:
        """``Requires-External`` lines: the ROCm release that fits, and by file name what no distribution brings."""
        if self.options.mode in ("retag", "rpath"):
            return ()
        names = sorted(n for contract, all_ in contracts if contract.declared == BY_NAME for n in all_)
        outside = [n for _, all_ in contracts for n in all_]
        known = headers(self.archive.metadata, "Requires-External")
        wanted = [*([f"ROCm ({self.rocm})"] if self.rocm and any(map(is_rocm, outside)) else []), *names]
        return tuple(line for line in wanted if line not in known)

    def _requires_dist(self) -> tuple[str, ...]:
        known = headers(self.archive.metadata, "Requires-Dist")
        return tuple(line for line in self.requires if line not in known)

    def _notes(self, outside: Sequence[str], grafts: Sequence[Graft]) -> list[str]:
        rows = {row.path: row for row in self.archive.record}
        bare = [m.name for m in self.archive.members if not m.is_directory and not _vouched(m.name, rows)]
        notes = [f"RECORD has no hash of {name}; none is made up for what does not change" for name in bare[:5]]
        notes += [f"RECORD lists {name}, which is not in the wheel" for name in rows if name not in self.archive][:5]
        if bare_grafts := [g.source.name for g in grafts if g.licence is None]:
            notes.append(f"no licence text was found for {', '.join(bare_grafts)}")
        if self.options.mode == "fat" and (brought := sorted(n for n in outside if is_rocm(n))):
            by = self._contract(brought[0])
            notes.append(f"{by} brings ROCm, so none is grafted: two copies in one process abort")
        if self.options.mode in ("retag", "rpath") and (left := [n for n in outside if not self._is_outside(n)]):
            notes.append(f"nothing brings {', '.join(left)}; --mode thin or fat would")
        return notes


def _vouched(name: str, rows: Mapping[str, object]) -> bool:
    return name.endswith((".dist-info/RECORD", "/RECORD.jws", "/RECORD.p7s")) or name in rows


def _renamed(elves: dict[str, ElfFacts], by_name: dict[str, str]) -> dict[str, str]:
    """Needed names that only a SONAME in the wheel answers to, with the member; the loader would not find it cold."""
    sonames = {facts.soname: member for member, facts in sorted(elves.items(), reverse=True) if facts.soname}
    needed = {name for facts in elves.values() for name in facts.needed}
    return {n: sonames[n] for n in sorted(needed) if n not in by_name and n in sonames and n not in system_libraries()}


def _library_directory(elves: dict[str, ElfFacts], archive: WheelArchive) -> str:
    """Where the wheel keeps its shared libraries, such as ``torch/lib``; grafted ones go there too."""
    folders = [posixpath.dirname(m) for m in elves if posixpath.basename(m).startswith("lib") and "/" in m]
    lib = [f for f in folders if posixpath.basename(f) == "lib"]
    if lib:
        return min(lib, key=lambda f: (-lib.count(f), f))
    tops = [m.partition("/")[0] for m in elves if "/" in m and ".data/" not in m]
    if tops:
        return f"{min(tops, key=lambda t: (-tops.count(t), t))}/lib"
    return f"{archive.path.name.partition('-')[0]}.libs/lib"
