"""The GPUs of this machine as a report: what each is, who may compute on it, and which wheels serve it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rocm_wheels.gpu.access import Obstacle, driver_version, in_container, notes, obstacles
from rocm_wheels.gpu.cards import Serving, serve
from rocm_wheels.gpu.detect import Gpu, detect
from rocm_wheels.inspect.answer import answer
from rocm_wheels.inspect.model import Answer, Inspection

_UNTOLD = Serving("none", "", "", "no manifest on the index tells its targets: inspect the wheel itself")
CARDS = ("gpu", "product", "target", "driver", "compute", "override")


@dataclass(frozen=True)
class Seen:
    """A GPU, what keeps this user from it, and by file name the answer of each wheel and of each one on an index."""

    gpu: Gpu
    obstacles: tuple[Obstacle, ...]
    wheels: tuple[tuple[str, Answer], ...] = ()
    indexed: tuple[tuple[str, Serving], ...] = ()


@dataclass(frozen=True)
class Machine:
    """All GPUs; ``driver`` is the version of amdgpu, ``notes`` variables that are set and change what programs see."""

    driver: str
    container: bool
    notes: tuple[str, ...]
    gpus: tuple[Seen, ...]

    def as_dict(self) -> dict[str, Any]:
        """The report for ``--json``."""
        return {
            "driver": self.driver,
            "container": self.container,
            "notes": list(self.notes),
            "gpus": [_gpu_dict(seen) for seen in self.gpus],
        }


def look(
    root: Path,
    environ: Mapping[str, str],
    *,
    rocminfo: Path | None = None,
    wheels: Sequence[Inspection] = (),
    indexed: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Machine:
    """The GPUs of the file system at ``root``, each with what wheels say of it.

    ``wheels`` were inspected; of those on an index only the targets are known: ``indexed``, by file name.
    """
    gpus = tuple(
        Seen(
            gpu,
            obstacles(gpu, root),
            tuple((w.wheel.name, answer(w, gpu.gfx)) for w in wheels) if gpu.gfx else (),
            tuple((name, serve(gpu.gfx, archs) if archs else _UNTOLD) for name, archs in indexed.items())
            if gpu.gfx
            else (),
        )
        for gpu in detect(root, rocminfo=rocminfo)
    )
    return Machine(driver_version(root), in_container(root), notes(environ), gpus)


def card_rows(machine: Machine) -> Iterator[tuple[str, ...]]:
    """A row per GPU under :data:`CARDS`, and below it one per obstacle and remedy."""
    alone = len(machine.gpus) == 1
    for seen in machine.gpus:
        gpu = seen.gpu
        product = gpu.product or (f"one of {', '.join(gpu.card.names[:4])}" if gpu.card.names else "not known")
        state = "no" if seen.obstacles else "yes"
        yield gpu.pci, product, gpu.gfx or "not known", gpu.driver or "none", state, _override(gpu, alone=alone)
        for each in seen.obstacles:
            yield "", "", "", "", "because", each.what
            yield "", "", "", "", "try", each.remedy


def _override(gpu: Gpu, *, alone: bool) -> str:
    """What may be set; beside other cards for this one alone (by its node in the topology, since ROCm 6.2)."""
    if gpu.card.override:
        variable = gpu.card.override.variable
        if not alone and gpu.node is not None:
            variable = variable.replace("=", f"_{gpu.node}=")
        return f"{variable} where code for {gpu.gfx} is missing ({gpu.card.override.why})"
    if gpu.card.refuse:
        return f"none: not {gpu.card.refuse.variable}, {gpu.card.refuse.why} ({gpu.card.refuse.source})"
    return "none is known to be right"


def _gpu_dict(seen: Seen) -> dict[str, Any]:
    card = seen.gpu.card
    return {
        **asdict(seen.gpu),
        "names": list(card.names),
        "generation": card.generation,
        "generic": card.generic,
        "status": card.status,
        "override": asdict(card.override) if card.override else None,
        "refused_override": asdict(card.refuse) if card.refuse else None,
        "usable": not seen.obstacles,
        "obstacles": [asdict(each) for each in seen.obstacles],
        "wheels": {name: said.as_dict() for name, said in seen.wheels},
        "index": {name: asdict(said) for name, said in seen.indexed},
    }
