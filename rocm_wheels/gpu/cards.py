"""Products and their targets, and the one answer to "does code for these targets run on this GPU?".

The table is `cards.toml`, a source beside each value; families and XNACK support come from AMD's rocm-bootstrap.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from rocm_bootstrap import targets as _targets

from rocm_wheels.errors import UnknownArch, nearest
from rocm_wheels.gpu.targets import check_arch

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

Kind = Literal["native", "generic", "override", "none"]

# Said by vendors and people, but telling no product from another.
_FILLER = frozenset(("amd", "ati", "radeon", "instinct", "tm", "r", "graphics", "gpu", "card", "series"))
_TOKEN = re.compile(r"[a-z]*\d+[a-z]*|[a-z]+")


@dataclass(frozen=True)
class Remedy:
    """An override: the target whose code it makes the runtime take, the variable's value, reason and source."""

    arch: str
    value: str
    why: str
    source: str

    @property
    def variable(self) -> str:
        """What to set, such as ``HSA_OVERRIDE_GFX_VERSION=10.3.0``."""
        return f"{OVERRIDE}={self.value}"


@dataclass(frozen=True)
class Card:
    """A GPU target and the products that have it. Empty strings and tuples mean "nobody could read it".

    ``family`` is the packaging sub-family (``gfx10_3``), ``generic`` the LLVM generic target whose code runs on it,
    ``on`` and ``off`` its target features as the hardware has them by itself, ``status`` its support in AMD's TheRock,
    ``refuse`` an override that people pass on and that does harm.
    """

    gfx: str
    names: tuple[str, ...] = ()
    generation: str = ""
    family: str = ""
    generic: str = ""
    xnack: bool = False
    on: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    status: str = ""
    override: Remedy | None = None
    refuse: Remedy | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Serving:
    """Whether and how code runs on a GPU: ``arch`` is the code that would run, ``variable`` what to set first."""

    kind: Kind
    arch: str
    variable: str
    why: str

    @property
    def runs(self) -> bool:
        """Whether there is any code that this GPU may run."""
        return self.kind != "none"


@functools.cache
def all_cards() -> tuple[Card, ...]:
    """Every known target, in the order of the table."""
    text = importlib.resources.files(__package__).joinpath("cards.toml").read_text("utf-8")
    data = tomllib.loads(text)
    sources = data.pop("sources")
    return tuple(_card(gfx, row, sources) for gfx, row in data.items())


def _card(gfx: str, row: dict[str, Any], sources: dict[str, str]) -> Card:
    products: dict[str, list[str]] = row.get("products", {})
    used = [*products, *(("status",) if "status" in row else ()), *(("llvm",) if "generic" in row else ())]
    remedies = {key: Remedy(**row[key]) for key in ("override", "refuse") if key in row}
    bundle = _bundle(gfx)
    return Card(
        gfx=gfx,
        names=tuple(name for names in products.values() for name in names),
        generation=row["generation"],
        family=bundle.key if bundle else "",
        generic=row.get("generic", ""),
        xnack=bundle is not None and _targets.lookup_target(gfx).xnack is not _targets.XnackMode.UNSUPPORTED,
        on=tuple(row.get("on", ())),
        off=tuple(row.get("off", ())),
        status=row.get("status", ""),
        override=remedies.get("override"),
        refuse=remedies.get("refuse"),
        sources=tuple(dict.fromkeys((*(sources[key] for key in used), *(r.source for r in remedies.values())))),
    )


def _bundle(gfx: str) -> _targets.TargetBundle | None:
    try:
        return _targets.bundle_for_target(gfx, _targets.PackagingLevel.SUB_FAMILY)
    except ValueError:  # targets that LLVM knows and rocm-bootstrap does not package
        return None


def card(gfx: str) -> Card:
    """The card of a target, features or not; an empty one for a target that the table does not have."""
    name = gfx.partition(":")[0]
    return next((c for c in all_cards() if c.gfx == name), Card(name))


def find(text: str) -> tuple[Card, ...]:
    """The cards meant by a target (``gfx1032``, ``gfx90a:xnack-``) or a product name (``RX 6600``, ``MI210``).

    A name that stands for several targets gives all of them. Raises :class:`UnknownArch` with the nearest known names.
    """
    if text.strip().lower().startswith("gfx"):
        return (card(check_arch(text.strip().lower())),)
    wanted = _tokens(text)
    if wanted:
        for match in (_same, _within):
            found = tuple(c for c in all_cards() if any(match(wanted, _tokens(name)) for name in c.names))
            if found:
                return found
    close = nearest(_short(text), (_short(name) for c in all_cards() for name in c.names))
    hint = "give its target (gfx…), which rocminfo and `invoke gpu` show"
    raise UnknownArch(
        f"no AMD GPU is known as {text!r}", remedy=f"{close} Or {hint}" if close.startswith("did") else hint
    )


def _short(name: str) -> str:
    return " ".join(word for word in name.split() if word.lower() not in _FILLER)


def _tokens(name: str) -> tuple[str, ...]:
    return tuple(t for t in _TOKEN.findall(name.lower()) if t not in _FILLER)


def _same(wanted: tuple[str, ...], name: tuple[str, ...]) -> bool:
    return "".join(wanted) == "".join(name)


def _within(wanted: tuple[str, ...], name: tuple[str, ...]) -> bool:
    return set(wanted) <= set(name)


def serve(gfx: str, archs: Iterable[str]) -> Serving:
    """How a GPU ``gfx`` (features as rocminfo prints them, or none) is served by code objects for ``archs``.

    In this order: code of its own, code of its generic target, code of a target of its sub-family that an override may
    pretend to. Features must match: code for ``xnack+`` does not load where XNACK is off.
    """
    own = card(gfx)
    available = tuple(dict.fromkeys(archs))
    direct = [_with_features("native", gfx, own, arch) for arch in _for(own.gfx, available)]
    direct += [_with_features("generic", gfx, own, arch) for arch in _for(own.generic, available)]
    running = sorted((s for s in direct if s.runs), key=lambda s: bool(s.variable))
    if running:
        return running[0]
    if own.override and (taken := _for(own.override.arch, available)):
        return Serving("override", taken[0], own.override.variable, f"{own.override.why} ({own.override.source})")
    return direct[0] if direct else Serving("none", "", "", _why_not(own, available))


def _with_features(kind: Kind, gfx: str, own: Card, arch: str) -> Serving:
    """The answer for code of the right processor, by its ``:xnack±`` and ``:sramecc±``."""
    has = dict.fromkeys(own.on, "+") | dict.fromkeys(own.off, "-") | _features(gfx)
    unknown = []
    for name, sign in _features(arch).items():
        if has.get(name, sign) != sign:
            if name == "xnack" and "xnack" not in _features(gfx) and own.gfx in ("gfx90a", "gfx942", "gfx950"):
                return Serving(kind, arch, f"HSA_XNACK={int(sign == '+')}", f"{arch} needs XNACK {_word(sign)}")
            state = _word("+" if sign == "-" else "-")
            return Serving("none", "", "", f"{arch} needs {name} {_word(sign)}, {own.gfx} has it {state}")
        if name not in has:
            unknown.append(f"{name} {_word(sign)}")
    why = f"if the card has {' and '.join(unknown)}" if unknown else "code of its own"
    if kind == "generic":
        why = (
            f"{'' if not unknown else why + '; '}{own.generic} runs on {own.gfx}; the runtime must know code object V6"
        )
    return Serving(kind, arch, "", why)


def _word(sign: str) -> str:
    return "on" if sign == "+" else "off"


def _features(arch: str) -> dict[str, str]:
    return {feature[:-1]: feature[-1] for feature in arch.split(":")[1:]}


def _for(processor: str, archs: tuple[str, ...]) -> list[str]:
    return [arch for arch in archs if arch.partition(":")[0] == processor]


def _why_not(own: Card, archs: tuple[str, ...]) -> str:
    if not archs:
        return "there is no GPU code"
    if own.refuse and _for(own.refuse.arch, archs):
        return f"no code for {own.gfx}; {own.refuse.why} ({own.refuse.source})"
    same = [a for a in archs if own.family and card(a).family == own.family]
    if same:
        return f"no code for {own.gfx}, and no override is known to be right for {', '.join(same)}"
    return f"no code for {own.gfx} nor for a target of its family"
