"""The files of a wheel that are no libraries: data by ROCm component and target, and everything by part."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from rocm_wheels.gpu.datafiles import targets_of
from rocm_wheels.inspect.model import Bytes, Data, Library
from rocm_wheels.wheel import Member

# Directories of data files, by the component that reads them (repair.providers has where each looks).
_COMPONENTS = (
    ("rocBLAS", re.compile(r"(^|/)rocblas/")),
    ("hipBLASLt", re.compile(r"(^|/)hipblaslt/")),
    ("hipSPARSELt", re.compile(r"(^|/)hipsparselt/")),
    ("MIOpen", re.compile(r"(^|/)miopen/")),
    ("aotriton", re.compile(r"(^|/)aotriton\.images/")),
    ("RCCL", re.compile(r"(^|/)(rccl/|msccl-algorithms/)")),
    ("rocFFT", re.compile(r"(^|/)rocfft/")),
    ("code objects", re.compile(r"\.(hsaco|co)$")),
)
# What the component's directory also holds in an installed ROCm, and is no data.
_NO_DATA = re.compile(r"(^|/)include/|\.(h|hpp|cmake|py|so[\d.]*|txt|md)$")

DEVICE, HOST, DATA, PYTHON, HEADERS, INFO, REST = (
    "device code",
    "host code",
    "GPU data files",
    "Python",
    "headers",
    "dist-info",
    "other files",
)


def component_of(path: str) -> str:
    """The ROCm component that reads the data file at ``path``, or ""."""
    if _NO_DATA.search(path):
        return ""
    return next((name for name, pattern in _COMPONENTS if pattern.search(path)), "")


def data_files(members: Iterable[Member]) -> tuple[Data, ...]:
    """The data files by component and target; one for several targets counts for each, its bytes once per target."""
    groups: dict[tuple[str, str], list[Member]] = defaultdict(list)
    for member in members:
        if not member.is_directory and (component := component_of(member.name)):
            for arch in sorted(targets_of(member.name)) or [""]:
                groups[component, arch].append(member)
    return tuple(
        Data(component, arch, len(files), _sum(files), tuple(m.name for m in files if not m.size))
        for (component, arch), files in sorted(groups.items())
    )


def parts(members: Iterable[Member], libraries: Iterable[Library]) -> dict[str, Bytes]:
    """Bytes by kind of content, in a fixed order; the sum is that of all members."""
    by_name = {lib.name: lib for lib in libraries}
    found = dict.fromkeys((DEVICE, HOST, DATA, PYTHON, HEADERS, INFO, REST), Bytes())
    for member in members:
        if library := by_name.get(member.name):
            found[HOST] += library.host
            found[DEVICE] += library.total + Bytes(-library.host.size, -library.host.packed)
        else:
            found[_part(member.name)] += Bytes(member.size, member.compressed_size)
    return found


def _part(path: str) -> str:
    if component_of(path):
        return DATA
    if path.partition("/")[0].endswith(".dist-info"):
        return INFO
    if path.endswith((".py", ".pyi", ".pyc")):
        return PYTHON
    return HEADERS if path.endswith((".h", ".hpp", ".hxx", ".cuh", ".hip", ".inc")) else REST


def _sum(members: Iterable[Member]) -> Bytes:
    return sum((Bytes(m.size, m.compressed_size) for m in members), Bytes())
