"""Decides a repair: reads the wheel and the machine, writes nothing."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.elf.patch import Edit
from rocm_wheels.errors import NothingToRepair, PlatformImpossible, UnusedExclude, UsageError
from rocm_wheels.repair.facts import ElfFacts, has_elf, wheel_facts
from rocm_wheels.repair.graft import DEFAULT_LIB_DIRS, Closure, closure, data_files, origin
from rocm_wheels.repair.model import ElfPlan, Graft, Need, RepairOptions, RepairPlan
from rocm_wheels.repair.providers import SDK_LAYOUTS, TORCH_LAYOUT, is_rocm, is_torch, rocm_major
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


class _Planner:
    """Holds what the steps of one plan share; its methods are those steps."""

    def __init__(self, archive: WheelArchive, elves: dict[str, ElfFacts], options: RepairOptions) -> None:
        self.archive = archive
        self.elves = elves
        self.options = options
        self.by_name = {posixpath.basename(member): member for member in sorted(elves, reverse=True)}
        self.renamed = _renamed(elves, self.by_name)
        self.libdir = _library_directory(elves, archive)
        self.needs_torch = _requires(archive, "torch")
        self.grafted = Closure({}, ())

    def plan(self) -> RepairPlan:
        options = self.options
        self._check_excludes()
        if options.mode in ("thin", "fat"):
            self.grafted = closure(self._missing(), options.lib_dirs, self._is_outside)
        grafted = {f"{self.libdir}/{name}": library for name, library in self.grafted.found.items()}
        elves = [self._elf_plan(member, facts) for member, facts in self.elves.items()]
        elves += [self._graft_plan(member, library.facts) for member, library in grafted.items()]
        grafts = tuple(Graft(member, library.path, *origin(library.path)) for member, library in grafted.items())
        data = {g for library in grafted.values() for g in data_files(library, self.libdir, options.archs)}
        measured = self._measure(elves, [replace(found.facts, name=member) for member, found in grafted.items()])
        platforms = self._platforms(measured)
        outside = sorted({n.name for e in elves for n in e.needs if n.provider == "outside"})
        return RepairPlan(
            wheel=self.archive.path,
            mode=options.mode,
            package=self.libdir.partition("/")[0],
            elves=tuple(elves),
            grafts=grafts,
            data=tuple(sorted(data, key=lambda g: g.member)),
            measured=measured,
            tags=(tags := retagged(self.archive.tags, platforms)),
            retags=tuple(headers(self.archive.wheel_file, "Tag")) != tags,
            name=file_name(self.archive.path.name, platforms),
            requires_external=self._requires_external(outside),
            anatomies={member: f.anatomy for member, f in self.elves.items() if f.anatomy},
            notes=(*self.grafted.notes, *self._notes(outside)),
        )

    def _is_excluded(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.options.exclude)

    def _is_outside(self, name: str) -> bool:
        """Whether another package or the system has to bring ``name``."""
        if name in self.by_name or name in self.renamed:
            return False
        if self._is_excluded(name) or (self.needs_torch and is_torch(name)):
            return True
        return self.options.mode != "fat" and is_rocm(name)

    def _missing(self) -> dict[str, str]:
        """Needs that the wheel does not satisfy itself, with a file that has them."""
        return {
            name: member
            for member, facts in self.elves.items()
            for name in facts.needed
            if name not in self.by_name and name not in self.renamed
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
        if name in self.by_name:
            return Need(name, "wheel", self.by_name[name])
        if name in self.grafted.found:
            return Need(name, "graft", f"{self.libdir}/{name}")
        if name in system_libraries():
            return Need(name, "system", _SYSTEM)
        if self.needs_torch and is_torch(name):
            return Need(name, "outside", "the torch wheel")
        return Need(name, "outside", "ROCm" if is_rocm(name) else "the system or another wheel")

    def _elf_plan(self, member: str, facts: ElfFacts) -> ElfPlan:
        needs = tuple(self._need(name) for name in facts.needed)
        if self.options.mode == "retag":
            return ElfPlan(member, needs, None, ())
        edit, reasons = self._rpath_edit(member, needs, facts, force=self.options.mode == "fat")
        edit, why = self._names(member, facts, edit)
        reasons += why
        if facts.stack_executable and not self.options.keep_stack:
            edit = replace(edit, clear_stack=True)
            reasons.append("executable stack: glibc 2.41 refuses to load it")
        return ElfPlan(member, needs, None if edit == _NOTHING else edit, tuple(reasons))

    def _names(self, member: str, facts: ElfFacts, edit: Edit) -> tuple[Edit, list[str]]:
        """Needs by a SONAME that is no file name: the loader looks for files, so both take the file's name."""
        swaps = tuple((n, posixpath.basename(self.renamed[n])) for n in facts.needed if n in self.renamed)
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
        return ElfPlan(member, needs, None if edit == _NOTHING else edit, ("grafted", *reasons))

    def _rpath_edit(
        self, member: str, needs: Sequence[Need], facts: ElfFacts, *, force: bool
    ) -> tuple[Edit, list[str]]:
        outside = [n.name for n in needs if n.provider == "outside"]
        layouts = [TORCH_LAYOUT] if self.needs_torch and any(map(is_torch, outside)) else []
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

    def _requires_external(self, outside: Sequence[str]) -> tuple[str, ...]:
        """``Requires-External`` lines: what must come from outside by file name, and the ROCm release of HIP."""
        if self.options.mode in ("retag", "rpath"):
            return ()
        names = [n for n in outside if not is_torch(n)]
        major = rocm_major(names)
        known = headers(self.archive.metadata, "Requires-External")
        wanted = [*([f"ROCm (>={major},<{major + 1})"] if major else []), *names]
        return tuple(line for line in wanted if line not in known)

    def _notes(self, outside: Sequence[str]) -> list[str]:
        rows = {row.path: row for row in self.archive.record}
        bare = [m.name for m in self.archive.members if not m.is_directory and not _vouched(m.name, rows)]
        notes = [f"RECORD has no hash of {name}; none is made up for what does not change" for name in bare[:5]]
        notes += [f"RECORD lists {name}, which is not in the wheel" for name in rows if name not in self.archive][:5]
        if self.needs_torch and any(is_rocm(name) for name in self.grafted.found):
            notes.append("torch is a dependency and may bring a ROCm of its own: two copies in one process")
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


def _requires(archive: WheelArchive, name: str) -> bool:
    """Whether METADATA declares the distribution ``name`` as a dependency."""
    lines = [line for line in headers(archive.metadata, "Requires-Dist") if line.lower().startswith(name)]
    if not lines:
        return False
    from packaging.requirements import InvalidRequirement, Requirement  # its grammar is much to compile

    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name.lower() == name and "extra" not in str(requirement.marker or ""):
            return True
    return False


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
