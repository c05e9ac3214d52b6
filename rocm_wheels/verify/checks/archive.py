"""RECORD and the archive's entries against the true content."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import stat
from collections.abc import Iterator

from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject
from rocm_wheels.wheel.archive import STORED
from rocm_wheels.wheel.record import Row

_BIG = 1 << 20
_STRONGER = ("sha384", "sha512")


def record(subject: Subject) -> Iterator[Finding]:
    """RECORD lists every file once with its true hash and size."""
    archive = subject.archive
    path = f"{archive.dist_info}/RECORD"
    signatures = {path, f"{archive.dist_info}/RECORD.jws", f"{archive.dist_info}/RECORD.p7s"}
    seen: set[str] = set()
    for row in archive.record:
        if row.path in seen:
            yield finding("record", row.path, "RECORD lists it twice")
        seen.add(row.path)
        if row.path not in signatures:
            yield from _row(subject, row)
    for name in sorted(subject.content.keys() - seen - signatures):
        yield finding("record", name, "the archive has it, RECORD does not list it")


def _row(subject: Subject, row: Row) -> Iterator[Finding]:
    true = subject.content.get(row.path)
    if true is None:
        yield finding("record", row.path, "RECORD lists it, the archive does not have it")
    elif not row.digest:
        yield finding("record-unhashed", row.path, "no hash")
    elif row.size not in (None, true.size):
        yield finding("record", row.path, f"RECORD says {row.size} bytes, it has {true.size}")
    elif (digest := _digest(subject, row, true)) != row.digest:
        yield finding("record", row.path, f"RECORD says {row.digest}, it is {digest}")


def _digest(subject: Subject, row: Row, true: Row) -> str:
    """The true hash by the algorithm of ``row``, which must be sha256 or stronger; else by sha256."""
    algorithm = row.digest.partition("=")[0]
    if algorithm not in _STRONGER:
        return true.digest
    state = hashlib.new(algorithm)
    for piece in subject.archive.chunks(subject.archive.member(row.path)):
        state.update(piece)
    return f"{algorithm}=" + base64.urlsafe_b64encode(state.digest()).rstrip(b"=").decode("ascii")


def files(subject: Subject) -> Iterator[Finding]:
    """Modes, compression and names of the entries."""
    folders = {parent for name in subject.content for parent in _parents(name)}
    directories = []
    for member in subject.archive.members:
        kind = stat.S_IFMT(member.mode)
        if member.is_directory:
            directories.append(member.name)
            continue
        if kind not in (0, stat.S_IFREG) or member.mode & (stat.S_ISUID | stat.S_ISGID):
            yield finding("special-file", member.name, f"mode {member.mode:o}", offset=member.header)
        elif member.mode and (not member.mode & stat.S_IROTH or member.mode & stat.S_IWOTH):
            yield finding("mode", member.name, f"mode {stat.filemode(member.mode)}", offset=member.header)
        if member.method == STORED and member.size >= _BIG:
            yield finding("stored", member.name, f"{member.size} bytes are stored as they are", offset=member.header)
        if member.name in folders:
            yield finding("name-clash", member.name, "it is a file, others lie in a directory of this name")
    if directories:
        yield finding("directory-entry", directories[0], f"{len(directories)} entries only name a directory")


def _parents(name: str) -> Iterator[str]:
    while name := posixpath.dirname(name):
        yield name
