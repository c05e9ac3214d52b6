"""METADATA, WHEEL and licence texts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from packaging.metadata import ExceptionGroup, InvalidMetadata, Metadata
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.repair.providers import is_rocm
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject
from rocm_wheels.wheel.metadata import headers

# Fields that installers act on: a wrong one keeps pip from installing (pypa/pip, since 24.1).
_ACTED_ON = frozenset({"name", "version", "requires-dist", "requires-python", "provides-extra", "metadata-version"})
_LICENCE = re.compile(r"(licen[cs]e|copying|notice|copyright|/licenses/)", re.IGNORECASE)


def metadata(subject: Subject) -> Iterator[Finding]:
    """METADATA and WHEEL exist, are valid and agree with the file name."""
    archive = subject.archive
    for name in ("METADATA", "WHEEL", "RECORD"):
        if f"{archive.dist_info}/{name}" not in archive:
            yield finding("metadata", name, "missing")
            return
    yield from _same_names(subject)
    yield from _valid(archive.metadata)
    tags = set(headers(archive.wheel_file, "Tag"))
    if tags != {str(tag) for tag in archive.tags}:
        evidence = f"WHEEL has {sorted(tags)}, the file name {sorted(map(str, archive.tags))}"
        yield finding("tag-disagrees", "WHEEL", evidence)
    if (format_ := headers(archive.wheel_file, "Wheel-Version")) != ["1.0"]:
        yield finding("metadata", "WHEEL", f"Wheel-Version is {format_}, installers know 1.0")
    compiled = sorted(m for m, e in subject.elves.items() if e.is_dynamic)
    if compiled and headers(archive.wheel_file, "Root-Is-Purelib") != ["false"]:
        yield finding("purelib", "WHEEL", f"Root-Is-Purelib is not false, {compiled[0]} is compiled")


def _same_names(subject: Subject) -> Iterator[Finding]:
    archive = subject.archive
    names, versions = headers(archive.metadata, "Name"), headers(archive.metadata, "Version")
    if [canonicalize_name(n) for n in names] != [archive.distribution]:
        yield finding("metadata", "METADATA", f"Name is {names}, the file name says {archive.distribution}")
    if [_version(v) for v in versions] != [archive.version]:
        yield finding("metadata", "METADATA", f"Version is {versions}, the file name says {archive.version}")
    stem, _, version = archive.dist_info.removesuffix(".dist-info").partition("-")
    if canonicalize_name(stem) != archive.distribution or _version(version) != archive.version:
        yield finding("metadata", archive.dist_info, "the directory is called after another wheel")


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _valid(text: str) -> Iterator[Finding]:
    try:
        Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        for error in group.exceptions:
            field = error.field if isinstance(error, InvalidMetadata) else ""
            yield finding("metadata" if field in _ACTED_ON else "metadata-format", "METADATA", str(error))


def licences(subject: Subject) -> Iterator[Finding]:
    """Licence files that METADATA names exist, and ROCm's libraries have some."""
    archive = subject.archive
    for file in headers(archive.metadata, "License-File"):
        places = (f"{archive.dist_info}/{file}", f"{archive.dist_info}/licenses/{file}")
        if not any(place in archive for place in places):
            yield finding("licence", "METADATA", f"License-File {file} is not in the wheel")
    bundled = sorted(m for m in subject.elves if is_rocm(posixpath.basename(m)))
    texts = [n for n in subject.content if _LICENCE.search(n) and re.search("rocm|hip|amd|roc", n, re.IGNORECASE)]
    if bundled and not texts:
        yield finding("licence-missing", bundled[0], f"{len(bundled)} libraries of ROCm, no licence text of ROCm")
