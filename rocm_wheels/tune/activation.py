"""The activation file: what to `source` before running a wheel on a GPU, every line with its reason."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocm_wheels.gpu import check_arch
from rocm_wheels.gpu.cards import card

_DATA = Path(__file__).parent / "variables.toml"


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable: ``set`` goes into the file, ``offer`` as a comment, ``folklore`` is read by nothing at run time."""

    name: str
    kind: Literal["set", "offer", "folklore"]
    value: str
    meaning: str
    source: str


def load_variables() -> tuple[Variable, ...]:
    """Every variable that there is something to say about."""
    return tuple(Variable(**entry) for entry in tomllib.loads(_DATA.read_text("utf-8"))["variable"])


def activation_file(version: str, gfx: str, *, devices: Sequence[str] = ()) -> str:
    """A POSIX shell file for the wheel ``version`` on ``gfx``; ``devices`` hides all other GPUs.

    Caches lie below ``$XDG_CACHE_HOME``, a directory per version and target. Raises :class:`UnknownArch`.
    """
    check_arch(gfx)
    override = card(gfx).override
    words = {
        "cache": f"${{XDG_CACHE_HOME:-$HOME/.cache}}/rocm-wheels/run/{version}/{gfx}",
        "devices": ",".join(devices) or "0",
        "gfx": gfx,
        "override": override.value if override else "",
        "override_why": f"For {gfx}: {override.why}" if override else f"For {gfx} none is legitimate.",
    }
    lines = [
        f"# For {version} on {gfx}; `. ./FILE` in the shell that runs it. Written by `invoke env`.",
        *(line for variable in load_variables() for line in _lines(variable, words, bool(devices))),
    ]
    return "\n".join(lines) + "\n"


def _lines(variable: Variable, words: Mapping[str, str], devices: bool) -> list[str]:
    value = variable.value.format_map(words)
    meaning = variable.meaning.format_map(words)
    if variable.kind == "folklore":
        return ["", f"# {variable.name} is not set: {meaning}", f"#   {variable.source}"]
    explained = ["", f"# {variable.name}: {meaning}", f"#   {variable.source}"]
    if variable.kind == "set":
        return [*explained, f'export {variable.name}="{value}"', f'mkdir -p "${variable.name}"']
    if variable.name == "ROCR_VISIBLE_DEVICES" and devices:
        return [*explained, f"export {variable.name}={shlex.quote(value)}"]
    return [*explained, f"# export {variable.name}={value}"] if value else explained
