"""RECORD: one row per file with its sha256 and size (PEP 376, PEP 427, binary distribution format)."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass

from rocm_wheels.errors import BrokenWheel


@dataclass(frozen=True, order=True)
class Row:
    """A row: path, ``sha256=…`` (empty for RECORD itself) and size in bytes (None where the row has none)."""

    path: str
    digest: str
    size: int | None


def digest(content: bytes) -> str:
    """``sha256=`` and the urlsafe base64 of the hash, without padding, as RECORD writes it."""
    return encode_digest(hashlib.sha256(content).digest())


def encode_digest(sha256: bytes) -> str:
    """A raw sha256 as RECORD writes it."""
    return "sha256=" + base64.urlsafe_b64encode(sha256).rstrip(b"=").decode("ascii")


def parse_record(data: bytes, name: str) -> tuple[Row, ...]:
    """The rows of RECORD; raises :class:`BrokenWheel` for text that is not CSV of three columns."""
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BrokenWheel(f"{name}: RECORD is not valid: {error}") from error
    found = []
    for number, fields in enumerate(rows, 1):
        if not fields:
            continue
        if len(fields) != 3 or not (fields[2] == "" or fields[2].isdigit()):
            raise BrokenWheel(f"{name}: RECORD line {number} is no path, hash and size: {fields}")
        found.append(Row(fields[0], fields[1], int(fields[2]) if fields[2] else None))
    return tuple(found)


def render_record(rows: Iterable[Row], path: str) -> bytes:
    """RECORD at ``path`` for ``rows``: sorted by path, RECORD itself last and without hash."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for each in sorted(r for r in rows if r.path != path):
        writer.writerow((each.path, each.digest, "" if each.size is None else each.size))
    writer.writerow((path, "", ""))
    return text.getvalue().encode("utf-8")
