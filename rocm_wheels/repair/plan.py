"""Decides a repair: reads the wheel and the machine, writes nothing."""

from __future__ import annotations

import mmap
import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rocm_wheels.elf import ElfFile
from rocm_wheels.elf.edit import Edit
from rocm_wheels.errors import NothingToRepair, PlatformImpossible, UsageError
from rocm_wheels.repair.graft import DEFAULT_LIB_DIRS, Found, closure, data_files, origin
from rocm_wheels.repair.model import ElfPlan, Graft, Need, RepairOptions, RepairPlan
from rocm_wheels.repair.providers import SDK_LAYOUTS, is_rocm
from rocm_wheels.wheel import Member, WheelArchive
from rocm_wheels.wheel.metadata import file_name, headers, retagged
from rocm_wheels.wheel.tags import Measured, blockers, measure, policies, system_libraries

_NOTHING = Edit()


def plan_repair(wheel: Path, options: RepairOptions) -> RepairPlan:
    """The plan for ``wheel``.

    Raises :class:`NothingToRepair` for a wheel without ELF files, :class:`LibraryMissing` for a need that nothing
    satisfies, :class:`PlatformImpossible` for a tag that the files forbid, :class:`UsageError` for an exclude that
    matches nothing, and the errors of reading.
    """
    options = replace(options, lib_dirs=options.lib_dirs or DEFAULT_LIB_DIRS)
    with WheelArchive.open(wheel) as archive:
        elves = _read_elves(archive)
        if not elves:
            raise NothingToRepair(f"{wheel.name} holds no compiled code", remedy="publish it as it is")
        return _Planner(archive, elves, options).plan()


def _read_elves(archive: WheelArchive) -> dict[str, ElfFile]:
    elves = {}
    for member in archive.members:
        if _may_be_elf(member):
            data = archive.read(member)
            if data[:4] == b"\x7fELF":
                elf = ElfFile.parse(data, member.name)
                if elf.is_dynamic:
                    elves[member.name] = elf
    return elves


def _may_be_elf(member: Member) -> bool:
    base = posixpath.basename(member.name)
    return member.size > 64 and (
        ".so" in base or "/bin/" in member.name or "." not in base or bool(member.mode & 0o111)
    )


class _Planner:
    """Holds what the steps of one plan share; its methods are those steps."""

    def __init__(self, archive: WheelArchive, elves: dict[str, ElfFile], options: RepairOptions) -> None:
        self.archive = archive
        self.elves = elves
        self.options = options
        self.by_name = _by_name(elves)
        self.libdir = _library_directory(elves)
        self.grafted: dict[str, Found] = {}

    def plan(self) -> RepairPlan:
        options = self.options
        if options.mode == "fat":
            self.grafted = closure(self._missing(), options.lib_dirs, options.exclude)
        self._check_excludes()
        grafted = {f"{self.libdir}/{name}": library for name, library in sorted(self.grafted.items())}
        elves = [self._elf_plan(member, elf) for member, elf in sorted(self.elves.items())]
        elves += [self._graft_plan(member, library) for member, library in grafted.items()]
        grafts = tuple(Graft(member, library.path, *origin(library.path)) for member, library in grafted.items())
        data = tuple(g for library in self.grafted.values() for g in data_files(library, self.libdir, options.archs))
        measured = self._measure(grafted.values())
        platforms = self._platforms(measured)
        return RepairPlan(
            wheel=self.archive.path,
            mode=options.mode,
            package=self.libdir.partition("/")[0],
            elves=tuple(elves),
            grafts=grafts,
            data=tuple(sorted(set(data), key=lambda g: g.member)),
            measured=measured,
            tags=retagged(self.archive.tags, platforms),
            name=file_name(self.archive.path.name, platforms),
            requires_external=self._requires_external(elves),
        )

    def _missing(self) -> dict[str, str]:
        """Needs that the wheel does not satisfy itself, with a file that has them."""
        return {
            name: member
            for member, elf in self.elves.items()
            for name in elf.needed
            if name not in self.by_name and name not in system_libraries()
        }

    def _check_excludes(self) -> None:
        needed = {name for elf in self.elves.values() for name in elf.needed}
        needed |= {name for library in self.grafted.values() for name in library.needed}
        for name in self.options.exclude:
            if name not in needed:
                raise UsageError(f"--exclude {name}: nothing in {self.archive.path.name} needs it")

    def _need(self, name: str) -> Need:
        if name in self.by_name:
            return Need(name, "wheel", self.by_name[name])
        if name in self.grafted:
            return Need(name, "graft", f"{self.libdir}/{name}")
        if name in system_libraries():
            return Need(name, "system", "every manylinux system has it")
        return Need(name, "outside", "ROCm" if is_rocm(name) else "the system or another wheel")

    def _elf_plan(self, member: str, elf: ElfFile) -> ElfPlan:
        needs = tuple(self._need(name) for name in elf.needed)
        edit, reasons = self._rpath_edit(member, needs, elf)
        if elf.stack_executable and not self.options.keep_stack and self.options.mode != "retag":
            edit = replace(edit, clear_stack=True)
            reasons = (*reasons, "executable stack: glibc 2.41 refuses to load it")
        return ElfPlan(member, needs, None if edit == _NOTHING else edit, reasons)

    def _graft_plan(self, member: str, library: Found) -> ElfPlan:
        needs = tuple(self._need(name) for name in library.needed)
        edit = Edit(rpath="$ORIGIN", force_rpath=True)
        return ElfPlan(member, needs, edit, ("grafted: finds its needs beside itself",))

    def _rpath_edit(self, member: str, needs: Sequence[Need], elf: ElfFile) -> tuple[Edit, tuple[str, ...]]:
        if self.options.mode == "retag":
            return _NOTHING, ()
        wanted = ":".join(self._rpath(member, needs, elf))
        force = self.options.mode == "fat"
        found, kind = (elf.rpath or "", True) if elf.runpath is None else (elf.runpath, False)
        if wanted == found and (not wanted or kind == force):
            return _NOTHING, ()
        why = (
            f"RPATH {found!r} → {wanted!r}"
            if wanted != found
            else f"{'RUNPATH → RPATH' if force else 'RPATH → RUNPATH'}"
        )
        return Edit(rpath=wanted, force_rpath=force), (why,)

    def _rpath(self, member: str, needs: Sequence[Need], elf: ElfFile) -> list[str]:
        """Entries in order: where the needs are in the wheel, what the wheel had of its own, outside, absolute."""
        here = posixpath.dirname(member)
        entries = [_origin(here, posixpath.dirname(n.where)) for n in needs if n.provider in ("wheel", "graft")]
        old = (elf.runpath if elf.runpath is not None else elf.rpath) or ""
        entries = [*self._kept(old, here), *entries]
        if self.options.mode != "fat" and any(n.provider == "outside" and is_rocm(n.name) for n in needs):
            entries += [_origin(here, layout) for layout in SDK_LAYOUTS]
            entries += self.options.absolute
        return list(dict.fromkeys(entries))

    def _kept(self, old: str, here: str) -> list[str]:
        """Entries of the old RPATH that lead to a directory of this wheel; build-host paths and "" are dropped."""
        folders = {posixpath.dirname(m) for m in self.elves}
        kept = []
        for entry in old.split(":"):
            if entry.startswith(("$ORIGIN", "${ORIGIN}")):
                relative = entry.replace("${ORIGIN}", "$ORIGIN").removeprefix("$ORIGIN").strip("/")
                target = posixpath.normpath(posixpath.join(here, relative))
                if target in folders:
                    kept.append(_origin(here, target))
        return kept

    def _measure(self, grafted: Iterable[Found]) -> Measured:
        elves = list(self.elves.values())
        maps = []
        for library in grafted:
            with library.path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            maps.append(data)
            elves.append(ElfFile.parse(data, library.name))
        measured = measure(elves)
        self._check_wish(elves)
        return measured

    def _check_wish(self, elves: list[ElfFile]) -> None:
        """Raise :class:`PlatformImpossible` unless the platform asked for holds for all files."""
        wish = self.options.plat
        if not wish:
            return
        names = {f"{name}_x86_64": p for p in policies() for name in (p.name, *p.aliases)}
        if wish not in names:
            raise UsageError(f"{wish!r} is no platform tag that auditwheel knows", remedy=", ".join(sorted(names)))
        found = blockers(names[wish], elves)
        if found:
            shown = "\n  - ".join(str(b) for b in found[:8])
            raise PlatformImpossible(
                f"{self.archive.path.name} cannot be {wish}; {len(found)} symbol versions forbid it:\n  - {shown}",
                remedy=f"the tag that holds is {measure(elves).policy.tag}; for an older one build in an older image",
            )

    def _platforms(self, measured: Measured) -> tuple[str, ...]:
        if self.options.mode == "rpath":
            return tuple(sorted({tag.platform for tag in self.archive.tags}))
        if self.options.plat:
            return (self.options.plat,)
        return (measured.policy.tag,)

    def _requires_external(self, elves: Sequence[ElfPlan]) -> tuple[str, ...]:
        """``Requires-External`` lines: the ROCm libraries that must come from outside, by SONAME."""
        if self.options.mode in ("retag", "rpath"):
            return ()
        names = sorted({n.name for e in elves for n in e.needs if n.provider == "outside"})
        known = headers(self.archive.metadata, "Requires-External")
        return tuple(name for name in names if name not in known)


def _by_name(elves: dict[str, ElfFile]) -> dict[str, str]:
    """Member that answers to a needed name: the file name, as the loader looks for it."""
    return {posixpath.basename(member): member for member in sorted(elves, reverse=True)}


def _library_directory(elves: dict[str, ElfFile]) -> str:
    """Where the wheel keeps its shared libraries, such as ``torch/lib``; grafted ones go there too."""
    folders = [posixpath.dirname(m) for m in elves if posixpath.basename(m).startswith("lib")]
    lib = [f for f in folders if posixpath.basename(f) == "lib"]
    if lib:
        return min(lib, key=lambda f: (-lib.count(f), f))
    tops = sorted({m.partition("/")[0] for m in elves if "/" in m})
    return f"{tops[0] if tops else 'lib'}/lib" if not folders else min(folders, key=lambda f: (-folders.count(f), f))


def _origin(here: str, target: str) -> str:
    relative = posixpath.relpath(target or ".", here or ".")
    return "$ORIGIN" if relative == "." else f"$ORIGIN/{relative}"
