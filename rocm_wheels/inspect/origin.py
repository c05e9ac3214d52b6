"""Which ROCm release a wheel was built for, by everything in it that says so."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from packaging.version import Version

from rocm_wheels.inspect.model import Evidence, Library
from rocm_wheels.wheel import WheelArchive
from rocm_wheels.wheel.metadata import headers

# Major releases of ROCm by SONAME. HIP's follows the release; the others as in published wheels whose compiler names
# the release (bitsandbytes 0.50.2, cupy_rocm_7_0 14.2.0, cyllama_rocm 0.7.0) and in Debian's 5.7.
_SONAMES = {
    "libamdhip64.so.5": "5", "libamdhip64.so.6": "6", "libamdhip64.so.7": "7",
    "librocblas.so.0": "5", "librocblas.so.4": "6", "librocblas.so.5": "7",
    "libhipblas.so.2": "6", "libhipblas.so.3": "7",
    "libhipblaslt.so.1": "7",
}  # fmt: skip

_COMPILER = re.compile(r"\broc-(\d+\.\d+(?:\.\d+)?)")
_BUILD_PATH = re.compile(r"/opt/rocm(?:-|/core-)(\d+\.\d+(?:\.\d+)?)")
_IN_VERSION = re.compile(r"\brocm(\d+(?:\.\d+)*)")
_IN_NAME = re.compile(r"\brocm-?(\d)(?:-?(\d+))?\b")  # jax-rocm60-pjrt, jax-rocm7-pjrt, cupy-rocm-7-0
# HIP's third number counts builds (6.3.42131) and is left out.
_VERSION_FILE = re.compile(
    r"^(?:__hip__|hip|hip_version|rocm|rocm_version)\b[^=\n]*=\s*['\"](\d+\.\d+(?:\.\d{1,3}\b)?)", re.M
)
_SDK = re.compile(r"^(?:rocm|rocm-sdk-\w+)(?:\[[^]]*\])?\s*==\s*(\d+\.\d+(?:\.\d+)?)")
_HIP_SYMBOLS = re.compile(r"hip_(\d+)\.(\d+)")
_MOST = 64 << 10


def rocm_evidence(archive: WheelArchive, libraries: Iterable[Library]) -> tuple[Evidence, ...]:
    """Every sign of a ROCm release: names, requirements, version files, compilers, SONAMEs and paths of libraries.

    Equal signs of several files are one, with the first file.
    """
    found: dict[tuple[str, str], Evidence] = {}
    for each in (*_of_wheel(archive), *_of_files(archive), *(e for lib in libraries for e in _of_library(lib))):
        found.setdefault((each.rocm, each.what), each)
    return tuple(sorted(found.values(), key=lambda e: (Version(e.rocm), e.what)))


def _of_wheel(archive: WheelArchive) -> Iterator[Evidence]:
    if match := _IN_VERSION.search(archive.version.local or ""):
        yield Evidence(match[1], f"+{archive.version.local}", "local version")
    if match := _IN_NAME.search(archive.distribution):
        yield Evidence(".".join(filter(None, match.groups())), archive.distribution, "name")
    for line in headers(archive.metadata, "Requires-Dist"):
        if match := _SDK.match(line):
            yield Evidence(match[1], line, "Requires-Dist")
    for line in headers(archive.metadata, "Requires-External"):
        if match := re.match(r"ROCm \(>=(\d+)", line):
            yield Evidence(match[1], line, "Requires-External")


def _of_files(archive: WheelArchive) -> Iterator[Evidence]:
    for member in archive.members:
        if posixpath.basename(member.name) in ("version.py", "_version.py") and member.size <= _MOST:
            text = archive.read(member).decode("utf-8", "replace")
            for match in _VERSION_FILE.finditer(text):
                yield Evidence(match[1], match[0].splitlines()[0], member.name)


def _of_library(library: Library) -> Iterator[Evidence]:
    for compiler in library.compilers:
        if match := _COMPILER.search(compiler):
            yield Evidence(match[1], f"compiled by ROCm's clang {match[1]}", library.name)
    for name in library.needed:
        if name in _SONAMES:
            yield Evidence(_SONAMES[name], f"needs {name}", library.name)
    for match in _BUILD_PATH.finditer(library.search_path):
        yield Evidence(match[1], f"path {match[0]} of the build host", library.name)


def hip_symbols(libraries: Iterable[Library]) -> str:
    """The newest ``hip_X.Y`` that a file needs: libamdhip64 of an older release lacks the symbol. "" for none."""
    found = [
        (int(match[1]), int(match[2]))
        for library in libraries
        for versions in library.verneed.values()
        for version in versions
        if (match := _HIP_SYMBOLS.fullmatch(version))
    ]
    return "hip_{}.{}".format(*max(found)) if found else ""
