"""Which GPUs the wheels of an index serve, by the manifests that lie beside them; no wheel is downloaded."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import requests
from packaging.utils import canonicalize_name

from rocm_wheels.errors import UsageError
from rocm_wheels.publish.manifest import manifest_path
from rocm_wheels.publish.simple import Index, IndexedFile, get


def archs_on_index(project_url: str, session: requests.Session) -> dict[str, tuple[str, ...]]:
    """GPU targets of each wheel on a project page (``https://…/simple/torch/``); none where no manifest tells.

    Raises :class:`UsageError` for an address without a project of wheels, and the errors of reading an index.
    """
    base, _, project = project_url.rstrip("/").rpartition("/")
    index = Index(f"{base}/", session)
    files = [f for f in index.files(canonicalize_name(project)).values() if f.filename.endswith(".whl")]
    if not files:
        raise UsageError(f"{project_url} lists no wheel", remedy="name a project's page: https://host/simple/torch/")
    return {file.filename: _archs(file, session) for file in sorted(files, key=lambda f: f.filename)}


def _archs(file: IndexedFile, session: requests.Session) -> tuple[str, ...]:
    folder = file.url.rpartition("/")[0]
    address = f"{folder}/{quote(manifest_path(Path(file.filename)).name)}"
    answer = get(session, address, headers={"Accept": "application/json"})
    try:
        archs = answer.json()["archs"] if answer.ok else ()
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(sorted(str(arch) for arch in archs))
