"""The targets that a user means with --gpu."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rocm_wheels.errors import UsageError
from rocm_wheels.gpu.cards import find
from rocm_wheels.gpu.detect import detect
from rocm_wheels.gpu.targets import check_arch


def rocminfo_program() -> Path | None:
    """rocminfo of this machine's ROCm, if there is one."""
    folders = os.pathsep.join((os.environ.get("PATH", ""), "/opt/rocm/bin"))
    found = shutil.which("rocminfo", path=folders)
    return Path(found) if found else None


def wanted_gpus(text: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Targets for a target (features kept), a product name, or "auto": this machine's. Nothing for "".

    Raises :class:`UnknownArch` for an unknown card and :class:`UsageError` where "auto" finds none.
    """
    if text == "auto":
        found = tuple(dict.fromkeys(g.gfx for g in detect(root, rocminfo=rocminfo_program()) if g.gfx))
        if not found:
            raise UsageError(
                "this machine has no AMD GPU whose target can be read", remedy="--gpu 'RX 6600' or gfx1032"
            )
        return found
    if text.startswith("gfx"):
        return (check_arch(text),)
    return tuple(card.gfx for card in find(text)) if text else ()
