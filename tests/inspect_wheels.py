"""Wheels to inspect: real libraries by gcc, device code by hand, data files of the right names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.elf_fixtures import bundle, make_library
from tests.wheel_fixtures import make_wheel

BLAS_DATA = "demo/lib/rocblas/library/TensileLibrary_lazy_{}.dat"


def device_library(
    folder: Path, name: str, *arch_sets: Iterable[str], payload: int = 5000, needs: Sequence[Path] = ()
) -> bytes:
    """A library with one bundle for each set of targets."""
    bundles = [bundle(list(archs), payload=b"\x7fELF" + bytes(range(256)) * (payload // 256)) for archs in arch_sets]
    return make_library(folder, name, bundles=bundles, needs=needs).read_bytes()


def stub(folder: Path, name: str) -> Path:
    """A library to be needed by others and to stay outside."""
    return make_library(folder, name)


def demo_wheel(
    folder: Path,
    libraries: Mapping[str, bytes],
    *,
    data: Mapping[str, bytes] | None = None,
    name: str = "demo",
    version: str = "1.0",
    requires: Sequence[str] = (),
) -> Path:
    """A wheel with these libraries below ``demo/lib`` and these data files."""
    files = {f"demo/lib/{file}": content for file, content in libraries.items()}
    files |= {"demo/__init__.py": b"value = 1\n", **(data or {})}
    return make_wheel(folder / "dist", name, version, files=files, requires=requires)
