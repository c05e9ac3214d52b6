"""What was grafted, for people and machines: a CycloneDX document (PEP 770) and licence texts.

The document is ``sboms/rocm-wheels.cdx.json`` of .dist-info; each component names the file that it describes in the
property ``rocm-wheels:file``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from pathlib import Path

from rocm_wheels.repair.model import Graft

SBOM = "sboms/rocm-wheels.cdx.json"
_LICENCES = "licenses/rocm"
_LICENCE_LINE = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)


def licences(grafts: Iterable[Graft]) -> dict[str, Path]:
    """Licence texts of what was grafted, by their place in .dist-info."""
    return {licence_place(g): g.licence for g in grafts if g.licence and g.package}


def licence_place(graft: Graft) -> str:
    """Where the licence text of a graft's package goes, in .dist-info."""
    return f"{_LICENCES}/{graft.package}.txt"


def sbom(grafts: Iterable[Graft], former: bytes = b"") -> bytes:
    """The document for ``grafts`` and the components of a ``former`` one; the same input gives the same bytes."""
    known = json.loads(former)["components"] if former else []
    components = [*known, *(_component(graft) for graft in grafts)]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components, sort_keys=True))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"tools": {"components": [{"type": "application", "name": "rocm-wheels"}]}},
        "components": components,
    }
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode("utf-8")


def _component(graft: Graft) -> dict[str, object]:
    component: dict[str, object] = {
        "type": "library",
        "name": graft.package or graft.source.name,
        "version": graft.version or "unknown",
        "properties": [{"name": "rocm-wheels:file", "value": graft.member}],
    }
    if graft.purl:
        component["purl"] = graft.purl
    if graft.licence and graft.package:
        names = licence_names(graft.licence) or [f"see {licence_place(graft)}"]
        component["licenses"] = [{"license": {"name": name}} for name in names]
    return component


def licence_names(file: Path) -> list[str]:
    """The licences that a machine-readable copyright file of Debian names, each once; [] for a plain text."""
    text = file.read_text("utf-8", errors="replace")
    if not text.startswith("Format:"):
        return []
    return list(dict.fromkeys(name.strip() for name in _LICENCE_LINE.findall(text)))
