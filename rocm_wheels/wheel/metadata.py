"""Small edits of WHEEL and METADATA that leave every other byte as it is, and file names to match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.tags import Tag

from rocm_wheels.errors import BrokenWheel

_HEADER_END = re.compile(r"\r?\n\r?\n|\Z")


def headers(text: str, name: str) -> list[str]:
    """Values of header ``name`` in METADATA or WHEEL, in order."""
    head = text[: _HEADER_END.search(text).start()] if text else ""  # type: ignore[union-attr]
    return [m.strip() for m in re.findall(rf"^{re.escape(name)}:[ \t]*(.*)$", head, re.MULTILINE | re.IGNORECASE)]


def with_headers(text: str, name: str, values: Iterable[str]) -> str:
    """``text`` with a header line for each of ``values`` that is not there yet, at the end of the headers."""
    new = [v for v in values if v not in headers(text, name)]
    if not new:
        return text
    end = _HEADER_END.search(text).start()  # type: ignore[union-attr]
    head, tail = text[:end].rstrip("\r\n"), text[end:]
    return head + "".join(f"\n{name}: {value}" for value in new) + (tail or "\n")


def with_header(text: str, name: str, value: str) -> str:
    """``text`` with header ``name`` saying ``value``: in the place of the first such line, else added."""
    end = _HEADER_END.search(text).start()  # type: ignore[union-attr]
    line = re.compile(rf"^({re.escape(name)}:[ \t]*).*$", re.MULTILINE | re.IGNORECASE)
    if not line.search(text, 0, end):
        return with_headers(text, name, (value,))
    return line.sub(lambda match: match[1] + value, text[:end], count=1) + text[end:]


def with_tags(text: str, tags: Sequence[str]) -> str:
    """WHEEL with exactly ``tags``, where the first Tag line stood; raises :class:`BrokenWheel` without one."""
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.lower().startswith("tag:")]
    if not places:
        raise BrokenWheel("WHEEL names no tag")
    if headers(text, "Tag") == list(tags):
        return text
    kept = [line for i, line in enumerate(lines) if i not in places]
    kept[places[0] : places[0]] = [f"Tag: {tag}\n" for tag in tags]
    return "".join(kept)


def retagged(tags: Iterable[Tag], platforms: Sequence[str]) -> tuple[str, ...]:
    """The interpreter and ABI of ``tags`` with ``platforms`` in the place of theirs, sorted."""
    pairs = {(tag.interpreter, tag.abi) for tag in tags}
    return tuple(f"{interpreter}-{abi}-{p}" for interpreter, abi in sorted(pairs) for p in platforms)


def file_name(old: str, platforms: Sequence[str]) -> str:
    """A wheel's file name with ``platforms`` as its last part; everything else stays as written."""
    stem = old.removesuffix(".whl").rpartition("-")[0]
    return f"{stem}-{'.'.join(platforms)}.whl"
