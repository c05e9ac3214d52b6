"""Renamed distributions, such as ``torch-rocm``: a wheel without files answers to ``Requires-Dist: torch`` for them.

A resolver works on names. ``torch-rocm`` brings the package ``torch`` but does not satisfy a requirement of ``torch``:
dependants bring the public torch, which overwrites its files (jax-ml/jax#16523, pytorch/pytorch#118233). The shim has
the name that they ask for, the version of the renamed wheel and an exact pin on it, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from pathlib import Path

from packaging.utils import NormalizedName, canonicalize_name, is_normalized_name

from rocm_wheels.errors import UsageError
from rocm_wheels.publish.dist import Dist, open_dist
from rocm_wheels.wheel import WheelArchive, WheelWriter

_SUFFIX = "-rocm"


def make_shim(wheel: Path, name: str, dest: Path) -> Path:
    """Write the wheel ``name`` into ``dest`` that brings the renamed ``wheel`` at exactly its version.

    Extras are handed on. Raises :class:`UsageError` when ``wheel`` already has that name, when it has no package of
    that name to stand in for, or when ``name`` is none.
    """
    dist = open_dist(wheel)
    wanted = canonicalize_name(name)
    if not is_normalized_name(wanted) or wanted == dist.name:
        raise UsageError(
            f"{wheel.name} needs no shim called {name!r}", remedy="name the distribution that others ask for"
        )
    package = wanted.replace("-", "_")
    if package not in _packages(wheel):
        raise UsageError(
            f"{wheel.name} has no package {package}: whoever requires {wanted} would get nothing",
            remedy=f"its packages: {', '.join(sorted(_packages(wheel))) or 'none'}",
        )
    info = f"{package}-{dist.version}.dist-info"
    path = dest / f"{package}-{dist.version}-py3-none-any.whl"
    with WheelWriter(path) as writer:
        writer.add(f"{info}/METADATA", _metadata(dist, wanted).encode("utf-8"))
        text = "Wheel-Version: 1.0\nGenerator: rocm-wheels\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        writer.add(f"{info}/WHEEL", text.encode("utf-8"))
    return path


def renamed_without_shim(dists: Sequence[Dist], listed: Callable[[NormalizedName], Sized]) -> tuple[str, ...]:
    """Warnings for wheels called ``X-rocm`` with a package ``X`` while set and index have no distribution ``X``.

    ``listed`` gives the files that the index has of a distribution.
    """
    names = {dist.name for dist in dists}
    warnings = []
    for dist in sorted({d.name: d for d in dists if d.name.endswith(_SUFFIX)}.values(), key=lambda d: d.name):
        plain = canonicalize_name(dist.name.removesuffix(_SUFFIX))
        if plain not in names and plain.replace("-", "_") in _packages(dist.path) and not listed(plain):
            warnings.append(
                f"{dist.name} does not satisfy a requirement of {plain}: dependants would bring the public {plain} "
                f"over its files; `invoke shim {dist.path} {plain}` makes a wheel that answers to that name"
            )
    return tuple(warnings)


def _packages(wheel: Path) -> set[str]:
    with WheelArchive.open(wheel) as archive:
        return {m.name.partition("/")[0] for m in archive.members if "/" in m.name and ".dist-info/" not in m.name}


def _metadata(dist: Dist, name: str) -> str:
    pin = f"=={dist.version}"
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {dist.version}",
        f"Summary: Has no files of its own: brings {dist.name}, which is {name} under another name",
        *([f"Requires-Python: {dist.requires_python}"] if dist.requires_python else []),
        f"Requires-Dist: {dist.name}{pin}",
    ]
    for extra in dist.raw.get("provides_extra", []):
        lines += [f"Provides-Extra: {extra}", f'Requires-Dist: {dist.name}[{extra}]{pin}; extra == "{extra}"']
    return "\n".join(lines) + "\n"
