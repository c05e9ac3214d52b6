"""The bytes of a wheel as boxes in boxes: a group per library or kind of file, in it a box per GPU, drawn as SVG."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rocm_wheels.gpu.cards import card
from rocm_wheels.inspect.data import DATA, DEVICE, HOST
from rocm_wheels.inspect.model import Bytes, Inspection, Library
from rocm_wheels.inspect.table import size_text
from rocm_wheels.inspect.treemap import Rect, squarify

WIDTH, HEIGHT = 960, 640
_HEADER = 18
_LETTER, _BOLD = 6.8, 7.8  # width of a letter at 12 px, generously
_MOST_LIBRARIES = 40

# Light fills with dark text on them, one per generation; what is for no GPU is grey.
_FILLS = {
    "Polaris, Fiji": "#e8d5c4", "Vega": "#f6d6ad", "Vega 20": "#f3c58b", "CDNA 1": "#f2b8b0", "CDNA 2": "#ec9a9a",
    "CDNA 3": "#e58ca8", "CDNA 4": "#d890c8", "RDNA 1": "#d8e6a3", "RDNA 2": "#b4dca0", "RDNA 3": "#93d0b6",
    "RDNA 3.5": "#8fcbd6", "RDNA 4": "#9dbfe8", "GFX12.5": "#b9b2ea",
}  # fmt: skip
_GREY, _PALE = "#d5d8dc", "#e9ebee"


@dataclass(frozen=True)
class Box:
    """A named amount: ``gfx`` is the target that it is for, or ""."""

    name: str
    total: Bytes
    gfx: str = ""


@dataclass(frozen=True)
class Group:
    """Boxes that belong together."""

    name: str
    boxes: tuple[Box, ...]

    @property
    def total(self) -> Bytes:
        """All boxes together."""
        return sum((box.total for box in self.boxes), Bytes())


def groups(found: Inspection) -> tuple[Group, ...]:
    """Everything in the wheel, once."""
    made = [_library(lib) for lib in found.libraries if lib.code]
    plain = sorted((lib for lib in found.libraries if not lib.code), key=lambda lib: -lib.total.packed)
    boxes = [Box(posixpath.basename(lib.name), lib.total) for lib in plain[:_MOST_LIBRARIES]]
    if rest := plain[_MOST_LIBRARIES:]:
        boxes.append(Box(f"{len(rest)} more", sum((lib.total for lib in rest), Bytes())))
    made.append(Group("libraries without GPU code", tuple(boxes)))
    for component in sorted({d.component for d in found.data}):
        each = [d for d in found.data if d.component == component]
        made.append(Group(f"{component} data", tuple(Box(d.arch or "for all GPUs", d.total, d.arch) for d in each)))
    others = [Box(name, total) for name, total in found.parts.items() if name not in (DEVICE, HOST, DATA)]
    return (*made, Group("other files", tuple(others)))


def _library(lib: Library) -> Group:
    coded = [Box(c.arch, Bytes(c.stored, c.packed), c.arch) for c in lib.code]
    return Group(posixpath.basename(lib.name), (*coded, Box("host code", lib.host)))


def legend(made: Sequence[Group]) -> tuple[tuple[str, str], ...]:
    """Generation and fill of every GPU that has a box, in order of age."""
    there = {card(box.gfx).generation for group in made for box in group.boxes if box.gfx}
    return tuple((name, fill) for name, fill in _FILLS.items() if name in there)


def draw(made: Sequence[Group], measure: str) -> str:
    """The SVG; ``measure`` is ``packed`` or ``size`` of :class:`Bytes`."""
    amount = {id(g): max(0, getattr(g.total, measure)) for g in made}
    shown = sorted((g for g in made if amount[id(g)]), key=lambda g: -amount[id(g)])
    rects = squarify([amount[id(g)] for g in shown], Rect(0, 0, WIDTH, HEIGHT))
    whole = sum(amount.values()) or 1
    body = "".join(_group(g, rect, measure, whole) for g, rect in zip(shown, rects, strict=True))
    label = "bytes of the wheel by library and GPU"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{body}</svg>'


def _group(group: Group, rect: Rect, measure: str, whole: int) -> str:
    boxes = sorted((b for b in group.boxes if getattr(b.total, measure) > 0), key=lambda b: -getattr(b.total, measure))
    header = _HEADER if rect.height > 3 * _HEADER and rect.width > 4 * _HEADER else 0
    inner = squarify([getattr(b.total, measure) for b in boxes], rect.without_top(header))
    parts = [f'<g class="group" data-name="{escape(group.name)}">']
    if header:
        strip = Rect(rect.x, rect.y, rect.width, header)
        parts.append(_rect(strip, "#3b4350", "strip", _about(group.name, group.total, whole, measure)))
        parts.append(_text(strip, _fit(group.name, rect.width, _BOLD), "strip"))
    for box, place in zip(boxes, inner, strict=True):
        parts.append(_box(box, group, place, measure, whole))
    return "".join(parts) + "</g>"


def _box(box: Box, group: Group, place: Rect, measure: str, whole: int) -> str:
    own = card(box.gfx)
    fill = _FILLS.get(own.generation, _GREY) if box.gfx else _PALE
    products = f" ({', '.join(own.names[:3])})" if box.gfx and own.names else ""
    lines = [f"{group.name}: {box.name}{products}", _about("", box.total, whole, measure)]
    drawn = _rect(place, fill, "box", "\n".join(lines))
    text = list(_labels(box, place, measure))
    return drawn + "".join(text)


def _labels(box: Box, place: Rect, measure: str) -> Iterator[str]:
    name = _fit(box.name, place.width)
    if box.gfx and name != box.name:  # a target cut short would be another one
        short = box.name.removeprefix("gfx")
        name = short if _fit(short, place.width) == short else ""
    if place.height >= 16 and name:
        yield _text(place, name)
        amount = size_text(getattr(box.total, measure))
        if place.height >= 32 and len(amount) * _LETTER + 8 <= place.width:
            yield _text(Rect(place.x, place.y + 15, place.width, place.height), amount, "amount")


def _about(name: str, total: Bytes, whole: int, measure: str) -> str:
    share = 100 * getattr(total, measure) / whole
    text = f"{size_text(total.packed)} in the wheel, {size_text(total.size)} unpacked, {share:.1f} %"
    return f"{name}: {text}" if name else text


def _fit(text: str, width: float, letter: float = _LETTER) -> str:
    """``text`` with its middle left out to fit ``width``; nothing when less than six letters would be left."""
    room = int((width - 8) / letter)
    if len(text) <= room:
        return text
    return f"{text[: room // 2]}…{text[room // 2 + 1 - room :]}" if room >= 7 else ""


def _rect(place: Rect, fill: str, kind: str, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{place.x:.2f}" y="{place.y:.2f}" width="{place.width:.2f}" '
        f'height="{place.height:.2f}" fill="{fill}"><title>{escape(title)}</title></rect>'
    )


def _text(place: Rect, text: str, kind: str = "name") -> str:
    return f'<text class="{kind}" x="{place.x + 4:.2f}" y="{place.y + 13:.2f}">{escape(text)}</text>' if text else ""
