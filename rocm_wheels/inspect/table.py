"""An inspection as tables for people."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rocm_wheels.gpu.cards import card
from rocm_wheels.inspect.model import Answer, Bytes, Inspection, Library


@dataclass(frozen=True)
class Table:
    """A titled table: column names and rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


_VERDICTS = {
    "native": "yes: native code",
    "generic": "yes: code for its generic target",
    "override": "yes, with an override",
    "none": "no",
    "outside": "decided outside",
    "empty": "nothing to run",
}


def size_text(size: float) -> str:
    """``12.3 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes everything")


def tables(found: Inspection, answers: Sequence[Answer] = ()) -> Iterator[Table]:
    """All tables that have rows, the answers first."""
    for table in (
        Table("Does it run on my card?", ("card", "answer", "set", "why"), tuple(answer_rows(answers))),
        Table(f"{found.distribution} {found.version}", ("what", ""), tuple(_facts(found))),
        Table("Bytes by part", ("part", "unpacked", "in the wheel"), tuple(_parts(found))),
        Table("Bytes by GPU", ("gpu", "product", "in the wheel", "stored", "code", "objects", "data"), _gpus(found)),
        _coverage(found),
        Table("Data files by GPU", ("component", "gpu", "files", "unpacked", "empty"), tuple(_data(found))),
        Table("Needs", ("library", "from", "where", "needed by"), tuple(_needs(found))),
        Table("Search paths", ("path", "kind", "files"), tuple(_paths(found))),
        Table(
            "Built for ROCm", ("release", "because of", "where"), tuple((e.rocm, e.what, e.where) for e in found.rocm)
        ),
        Table("Not readable", ("file", "why"), found.unreadable),
    ):
        if table.rows:
            yield table


def answer_rows(answers: Sequence[Answer]) -> Iterator[tuple[str, str, str, str]]:
    """A row per answer (card, answer, what to set, why), and below it one per reason, note and variant."""
    for each in answers:
        names = card(each.gfx).names
        shown = f"{each.gfx} ({names[0]}{' …' if len(names) > 1 else ''})" if names else each.gfx
        yield shown, _VERDICTS[each.verdict], each.variable, each.why
        for member, why in each.lacking:
            yield "", "  lacks", member, why
        for note in each.notes:
            yield "", "  note", "", note
        for label, variant in each.variants:
            yield "", f"  {label}", variant.variable, f"{_VERDICTS[variant.verdict]}: {variant.why}"


def _facts(found: Inspection) -> Iterator[tuple[str, ...]]:
    yield "file", f"{found.wheel.name}, {size_text(found.total.packed)} packed, {size_text(found.total.size)} unpacked"
    yield "tags", " ".join(found.tags)
    yield "Python", found.requires_python or "any"
    floor = f"{found.platform}" + (f": {found.platform_floor[0]}" if found.platform_floor else "")
    yield "platform of its files", floor
    for reason in found.platform_floor[1:4]:
        yield "", reason
    if len(found.platform_floor) > 4:
        yield "", f"and {len(found.platform_floor) - 4} more forbid an older one"
    yield "ROCm", ", ".join(found.rocm_releases) or "nothing says for which"
    if found.hip_symbols:
        yield "HIP symbols", f"{found.hip_symbols} and older"
    if found.external:
        yield "Requires-External", ", ".join(found.external)


def _parts(found: Inspection) -> Iterator[tuple[str, ...]]:
    for name, total in found.parts.items():
        if total.size:
            yield name, *_sizes(total)
    yield "all", *_sizes(found.total)


def _sizes(total: Bytes) -> tuple[str, str]:
    return size_text(total.size), size_text(total.packed)


def _gpus(found: Inspection) -> tuple[tuple[str, ...], ...]:
    rows = []
    for arch, (code, data) in found.by_gpu().items():
        sizes = (code.packed, code.stored, code.inflated, data.size)
        packed, stored, inflated, files = (size_text(v) if v else "" for v in sizes)
        product = next(iter(card(arch).names), "")
        rows.append((arch, product, packed, stored, inflated, str(code.objects or ""), files))
    return tuple(rows)


def _coverage(found: Inspection) -> Table:
    """How many of each library's bundles have code for each target: ``all`` or n/m. The longer side goes down."""
    archs = tuple(a for a in found.archs if any(c.arch == a for lib in found.libraries for c in lib.code))
    head: tuple[str, ...] = ("library", "bundles", *archs)
    rows = tuple((posixpath.basename(lib.name), *_row(lib, archs)) for lib in found.device_libraries)
    if len(archs) > len(rows):
        head, *rows_down = zip(head, *rows, strict=True)
        rows = tuple(rows_down)
    return Table("Device code: bundles with code for each target", head, rows)


def _row(lib: Library, archs: Sequence[str]) -> Iterator[str]:
    if lib.broken or lib.split:
        yield lib.broken or "split off into .kpack archives"
        yield from ("" for _ in archs)
        return
    yield f"{len(lib.bundles)}" + (f" + {len(lib.embedded)} embedded" if lib.embedded else "")
    for arch in archs:
        count = sum(arch in b.archs for b in lib.bundles)
        embedded = sum(arch in b.archs for b in lib.embedded)
        own = "all" if count and count == len(lib.bundles) else f"{count}/{len(lib.bundles)}" if count else ""
        yield (own + (f" + {embedded}" if embedded else "")) or "-"


def _data(found: Inspection) -> Iterator[tuple[str, ...]]:
    for each in found.data:
        yield each.component, each.arch or "all", str(each.files), size_text(each.total.size), ", ".join(each.empty)


_FROM = {
    "wheel": "the wheel",
    "unreachable": "the wheel, but no path leads there",
    "system": "the system",
    "python": "Python",
    "declared": "outside, declared",
    "distribution": "another distribution",
    "rpath": "outside, by a path only",
    "rocm": "outside, declared nowhere",
    "unknown": "nobody that is known",
}


def _needs(found: Inspection) -> Iterator[tuple[str, ...]]:
    system = [n.library for n in found.needs if n.provider == "system"]
    for each in found.needs:
        if each.provider != "system":
            who = posixpath.basename(each.members[0])
            more = f" and {len(each.members) - 1} more" if len(each.members) > 1 else ""
            yield each.library, _FROM[each.provider], _short(each.where), who + more
    if system:
        yield _short(", ".join(system)), _FROM["system"], "", ""


def _paths(found: Inspection) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for lib in found.libraries:
        if lib.search_path:
            kind = "RPATH" if lib.runpath is None else "RUNPATH"
            groups.setdefault((lib.search_path, kind), []).append(posixpath.basename(lib.name))
    for (path, kind), files in groups.items():
        yield _short(path), kind, files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def _short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
