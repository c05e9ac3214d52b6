"""METADATA, WHEEL and SBOM of the wheels that a split makes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rocm_wheels.repair.providers import is_rocm
from rocm_wheels.wheel.metadata import with_headers

_SUMMARIES = {
    "core": "ROCm's HIP runtime, compiler support and system libraries for wheels made by rocm-wheels",
    "libraries": "ROCm's math and communication libraries for wheels made by rocm-wheels",
}
_FILE = "rocm-wheels:file"


def base_metadata(name: str, version: str, layer: str, requires: Sequence[str], licences: Sequence[str]) -> str:
    """METADATA of a base wheel; ``licences`` are paths below ``licenses/``."""
    summary = _SUMMARIES.get(layer, f"Data of ROCm's libraries for {layer.removeprefix('device-')}")
    text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: {summary}\nRequires-Python: >=3.8\n"
    text = with_headers(with_headers(text, "License-File", licences), "Requires-Dist", requires)
    return text + (
        "\nFrameworks pin this package exactly; installing it by itself is of no use. It is not one of AMD's "
        "`rocm-sdk` packages and shares no file with them.\n"
    )


def base_wheel_file(tags: Iterable[str]) -> str:
    """WHEEL of a base wheel."""
    lines = "".join(f"Tag: {tag}\n" for tag in tags)
    return f"Wheel-Version: 1.0\nGenerator: rocm-wheels\nRoot-Is-Purelib: false\n{lines}"


def without_headers(text: str, name: str, unwanted: Callable[[str], bool]) -> str:
    """``text`` without the header lines ``name`` whose value is ``unwanted``."""
    head, separator, body = text.partition("\n\n")
    kept = []
    for line in head.split("\n"):
        key, _, value = line.partition(":")
        if key.lower() != name.lower() or not unwanted(value.strip()):
            kept.append(line)
    return "\n".join(kept) + separator + body


def without_rocm_externals(text: str) -> str:
    """``text`` without the ``Requires-External`` lines that ask for what a base wheel brings."""
    return without_headers(text, "Requires-External", lambda value: is_rocm(value) or value.startswith("ROCm "))


def components(sboms: Iterable[bytes]) -> dict[str, dict[str, Any]]:
    """The components of CycloneDX documents by the file that each describes; others are left out."""
    found: dict[str, dict[str, Any]] = {}
    for document in sboms:
        for component in json.loads(document).get("components", []):
            for each in component.get("properties", []):
                if each.get("name") == _FILE:
                    found[str(each["value"])] = component
    return found


def sbom(placed: Mapping[str, Mapping[str, Any]]) -> bytes:
    """A CycloneDX document of components by the place of their file; the same content gives the same bytes."""
    listed = [
        {**component, "properties": [{"name": _FILE, "value": place}]} for place, component in sorted(placed.items())
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(listed, sort_keys=True))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "components": listed,
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("utf-8")
