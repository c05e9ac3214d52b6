"""Checks that read the wheel and load nothing."""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from rocm_wheels.elf import ElfFile, offload
from rocm_wheels.elf.layout import check_layout
from rocm_wheels.elf.reader import EM_X86_64
from rocm_wheels.errors import BrokenBundle, BrokenElf, BrokenWheel
from rocm_wheels.repair.providers import DATA, is_rocm, stem
from rocm_wheels.verify.catalogue import explain
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject
from rocm_wheels.wheel.metadata import headers
from rocm_wheels.wheel.tags import blockers, policies, system_libraries

_HASHED = re.compile(r"^(lib[\w+]+(?:64)?)-[0-9a-f]{8}(\.so[\d.]*)$")
_OPENED = re.compile(rb"\0(lib[\w+-]+\.so(?:\.\d+)*)(?=\0)")
_GFX = re.compile(r"gfx[0-9a-f]{3,4}(?![0-9a-f])")
_BUILD_HOST = re.compile(r"^/(?!opt/rocm|usr/|lib)")
_WITH_DATA = ("librocblas", "libhipblaslt", "libhipsparselt")


def _find(check: str, member: str, evidence: str) -> Finding:
    return Finding(explain(check), member, evidence)


def record(subject: Subject) -> Iterator[Finding]:
    """RECORD against the true content."""
    archive = subject.archive
    path = f"{archive.dist_info}/RECORD"
    seen: set[str] = set()
    for each in archive.record:
        if each.path in seen:
            yield _find("record", each.path, "RECORD lists it twice")
        seen.add(each.path)
        true = subject.content.get(each.path)
        if each.path == path:
            continue
        if true is None:
            yield _find("record", each.path, "RECORD lists it, the archive does not have it")
        elif not each.digest:
            yield _find("record-unhashed", each.path, "no hash")
        elif each.digest != true.digest or each.size not in (None, true.size):
            yield _find(
                "record", each.path, f"RECORD says {each.digest} and {each.size}, it is {true.digest}, {true.size}"
            )
    signatures = (path, f"{archive.dist_info}/RECORD.jws", f"{archive.dist_info}/RECORD.p7s")
    for name in sorted(subject.content.keys() - seen - set(signatures)):
        yield _find("record", name, "the archive has it, RECORD does not list it")


def metadata(subject: Subject) -> Iterator[Finding]:
    """METADATA and WHEEL against the file name."""
    archive = subject.archive
    for name in ("METADATA", "WHEEL", "RECORD"):
        if f"{archive.dist_info}/{name}" not in archive:
            yield _find("metadata", name, "missing")
            return
    for header, wanted in (("Name", archive.distribution), ("Version", str(archive.version))):
        found = headers(archive.metadata, header)
        if len(found) != 1 or re.sub(r"[-_.]+", "-", found[0]).lower() != re.sub(r"[-_.]+", "-", wanted).lower():
            yield _find("metadata", "METADATA", f"{header} is {found}, the file name says {wanted}")
    tags = set(headers(archive.wheel_file, "Tag"))
    if tags != {str(tag) for tag in archive.tags}:
        yield _find(
            "tag-disagrees", "WHEEL", f"WHEEL has {sorted(tags)}, the file name {sorted(map(str, archive.tags))}"
        )
    for file in headers(archive.metadata, "License-File"):
        places = (f"{archive.dist_info}/{file}", f"{archive.dist_info}/licenses/{file}")
        if not any(place in archive for place in places):
            yield _find("licence", "METADATA", f"License-File {file} is not in the wheel")


def elf_files(subject: Subject) -> Iterator[Finding]:
    """Layout, stack, RPATH and version needs of each file by itself."""
    yield from subject.unreadable
    for member, elf in subject.elves.items():
        if elf.machine != EM_X86_64 or not elf.is_dynamic:
            continue
        for problem in check_layout(elf):
            yield _find("layout", member, problem)
        if elf.stack_executable:
            yield _find("exec-stack", member, "PT_GNU_STACK is missing or has the execute flag")
        yield from _rpath(member, elf)
        for library in sorted(elf.verneed.keys() - set(elf.needed)):
            yield _find("version-needs", member, f"versions {', '.join(elf.verneed[library])} of {library}, not needed")


def _rpath(member: str, elf: ElfFile) -> Iterator[Finding]:
    for text in filter(None, (elf.rpath, elf.runpath)):
        for entry in text.split(":"):
            if not entry:
                yield _find("empty-rpath", member, repr(text))
            elif entry.startswith(("$ORIGIN", "${ORIGIN}")):
                continue
            elif entry.startswith("/") and not _BUILD_HOST.match(entry):
                yield _find("system-rpath", member, entry)
            else:
                yield _find("absolute-rpath", member, entry)


def closure(subject: Subject) -> Iterator[Finding]:
    """Each need by its own file's RPATH, as the loader would look for it."""
    for member, elf in subject.elves.items():
        folders = _search(member, elf)
        for name in elf.needed:
            target = next((f"{f}/{name}" for f in folders if f"{f}/{name}" in subject.elves), None)
            if target:
                yield from _versions(member, elf, name, target, subject)
            elif name not in system_libraries() and name not in subject.external:
                yield from _unreachable(member, name, subject)


def _search(member: str, elf: ElfFile) -> list[str]:
    """Directories of the wheel that the file's RPATH leads to."""
    here = posixpath.dirname(member)
    entries = ((elf.runpath if elf.runpath is not None else elf.rpath) or "").split(":")
    origin = [e.replace("${ORIGIN}", "$ORIGIN") for e in entries]
    return [posixpath.normpath(posixpath.join(here, e[7:].strip("/"))) for e in origin if e.startswith("$ORIGIN")]


def _unreachable(member: str, name: str, subject: Subject) -> Iterator[Finding]:
    inside = subject.member_of(name)
    if inside:
        yield _find("closure", member, f"needs {name}, which is {inside}, where its RPATH does not lead")
        return
    same = sorted(posixpath.basename(m) for m in subject.elves if stem(posixpath.basename(m)) == stem(name))
    if same and is_rocm(name):
        yield _find("soname-major", member, f"needs {name}, the wheel has {same[0]}")
        return
    yield _find("closure", member, f"needs {name}: not in the wheel, not of the system, not declared external")


def _versions(member: str, elf: ElfFile, name: str, target: str, subject: Subject) -> Iterator[Finding]:
    defined = subject.elves[target].verdef
    missing = sorted(set(elf.verneed.get(name, ())) - set(defined))
    if missing and defined:
        yield _find("defined-versions", member, f"{target} does not define {', '.join(missing)} of {name}")


def names(subject: Subject) -> Iterator[Finding]:
    """Renamed ROCm libraries and copies of one library."""
    copies = defaultdict(list)
    for member in subject.elves:
        base = posixpath.basename(member)
        if (hashed := _HASHED.match(base)) and is_rocm(hashed[1] + hashed[2]):
            yield _find("hashed-name", member, f"{base} was {hashed[1]}{hashed[2]}")
        copies[subject.content[member].digest].append(member)
    for members in copies.values():
        if len(members) > 1:
            yield _find("duplicate-content", members[0], f"same bytes as {', '.join(members[1:])}")


def opened(subject: Subject) -> Iterator[Finding]:
    """ROCm libraries whose names stand as whole strings in ``.rodata``: they are opened by name, not needed.

    A wheel that declares ROCm as external is left alone, its names are met by the user's ROCm.
    """
    if subject.external:
        return
    present = {posixpath.basename(member) for member in subject.elves}
    for member, elf in subject.elves.items():
        if not any(section.name == ".rodata" for section in elf.sections):
            continue
        literals = {match.decode() for match in _OPENED.findall(b"\0" + bytes(elf.section_bytes(".rodata")))}
        for name in sorted(literals - present - set(elf.needed)):
            if is_rocm(name):
                yield _find("dlopen-name", member, f"has the name {name}, the wheel has no such file")


def coverage(subject: Subject) -> Iterator[Finding]:
    """Device code and data per GPU target; the intersection over bundles counts, not the union."""
    any_code = False
    for member, elf in subject.elves.items():
        try:
            bundles = offload.read_bundles(elf)
        except (BrokenBundle, BrokenElf) as error:
            any_code = True
            yield _find("bundle-broken", member, error.message)
            continue
        if not bundles:
            continue
        any_code = True
        everywhere = frozenset.intersection(*(b.archs for b in bundles))
        somewhere = frozenset.union(*(b.archs for b in bundles))
        for arch in subject.options.archs:
            if arch not in everywhere:
                lacking = sum(arch not in b.archs for b in bundles)
                yield _find("arch-missing", member, f"{lacking} of {len(bundles)} bundles have no code for {arch}")
        if uneven := sorted(somewhere - everywhere - set(subject.options.archs)):
            yield _find("arch-uneven", member, f"only some bundles have code for {', '.join(uneven)}")
    if not any_code and subject.profile in ("torch", "tensorflow", "jax"):
        yield _find("no-device-code", subject.archive.path.name, "no library has a .hip_fatbin section with code")
    yield from _data(subject)


def _data(subject: Subject) -> Iterator[Finding]:
    for member in subject.elves:
        library = stem(posixpath.basename(member))
        if library not in _WITH_DATA:
            continue
        folder = f"{posixpath.dirname(member)}/{library.removeprefix('lib')}/"
        sizes = {n: r.size or 0 for n, r in subject.content.items() if n.startswith(folder)}
        if not sizes:
            yield _find("data-missing", member, f"there is no {folder}{'…/library' if DATA.get(library) else ''}")
            continue
        for arch in subject.options.archs:
            processor = arch.partition(":")[0]
            files = [n for n in sizes if processor in _GFX.findall(n)]
            if not files or not any(sizes[n] for n in files):
                yield _find("data-missing", member, f"no data for {processor} in {folder}")
        for name, size in sizes.items():
            if not size:
                yield _find("data-missing", name, "the file is empty")


def platform(subject: Subject) -> Iterator[Finding]:
    """The tag's promise against the symbol versions of all files."""
    known = {f"{name}_x86_64": p for p in policies() for name in (p.name, *p.aliases)}
    for tag in sorted({t.platform for t in subject.archive.tags}):
        if tag in known:
            for blocker in blockers(known[tag], subject.elves.values()):
                yield _find(
                    "platform", blocker.member, f"{tag} does not promise {blocker.version} of {blocker.library}"
                )
        elif tag == "any" and subject.elves:
            yield _find("platform", sorted(subject.elves)[0], "the tag says 'any', this file is for x86-64 Linux")


CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    record,
    metadata,
    elf_files,
    closure,
    names,
    opened,
    coverage,
    platform,
)


def run_static(subject: Subject) -> tuple[Finding, ...]:
    """All findings of the checks that load nothing, in the order of the catalogue's groups."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(subject)
        except BrokenWheel as error:
            found.append(_find("metadata", subject.archive.path.name, error.message))
    return tuple(dict.fromkeys(found))
