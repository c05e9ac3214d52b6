"""A static index in storage that is reached through a client: rsync or S3.

Beside every wheel lies a claim, ``FILE.whl.claim.json``, with all that the pages say of it. It is written first and
never replaced, so of two publishers with other bytes one is refused before gigabytes are sent. Pages are made from the
claims whose wheel is there, after the wheel; whoever has written pages looks again, so the last page knows every wheel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from packaging.utils import InvalidWheelFilename, NormalizedName, parse_wheel_filename

from rocm_wheels.console import Console
from rocm_wheels.errors import NameTaken, ReadBackMismatch
from rocm_wheels.publish import pages
from rocm_wheels.publish.attest import attestation_path
from rocm_wheels.publish.dist import Dist
from rocm_wheels.publish.index import SIMPLE, describe, load_wheel
from rocm_wheels.publish.journal import Journal
from rocm_wheels.publish.manifest import manifest_path
from rocm_wheels.publish.pages import IndexedWheel
from rocm_wheels.publish.repository import name_taken

_CLAIM = ".claim.json"
_ATTEMPTS = 5


class Client(Protocol):
    """What a storage client does; every method raises the publish error of the layer that failed."""

    @property
    def address(self) -> str:
        """The place, without credentials."""

    def sizes(self) -> dict[str, int]:
        """Bytes of every file that lies directly in the place, by name."""

    def read(self, names: list[str]) -> dict[str, bytes]:
        """Small files by name; those that are not there are left out."""

    def put(self, files: Mapping[str, bytes], *, replace: bool) -> None:
        """Write small files by relative path; with ``replace`` off those that are there stay."""

    def upload(self, dist: Dist) -> None:
        """Stream a wheel to its name; it appears when it is whole."""

    def same(self, dist: Dist, sha256: str) -> bool:
        """Whether the file of the wheel's name holds its bytes."""


@dataclass(frozen=True)
class StorageStore:
    """The storage as :func:`rocm_wheels.publish.run.publish` uses it. ``index_url`` is where pip reads it."""

    client: Client
    journal: Journal
    console: Console
    index_url: str

    def filenames(self, project: NormalizedName) -> tuple[str, ...]:
        """The wheels of a project that are there."""
        return tuple(name for name in sorted(self.client.sizes()) if _project(name) == project)

    def warning(self, project: NormalizedName) -> str:
        """Nothing is risky about files."""
        return ""

    def sha256(self, dist: Dist) -> str | None:
        """The hash that was claimed for a wheel that is there, or None.

        Raises :class:`NameTaken` for a claim of other bytes whose wheel never came.
        """
        claim = self._claim(dist)
        if dist.filename in self.client.sizes():
            return claim.sha256 if claim else "unknown"
        return None

    def settle(self, dist: Dist, sha256: str, found: str) -> str | None:
        """Files appear when they are whole, so other bytes are other bytes; one without a claim is compared."""
        if found == "unknown" and self.client.same(dist, sha256):
            self._finish(dist, sha256)
            return sha256
        raise name_taken(dist, sha256, found, self.client.address)

    def attach(self, dist: Dist, files: Mapping[str, bytes]) -> None:
        """Lay the files that go with a wheel beside its place; those of an earlier publication stay."""
        self.client.put(files, replace=False)

    def put(self, dist: Dist, sha256: str) -> None:
        """Claim the name, upload the wheel, then write the pages.

        Raises :class:`NameTaken` when another publisher has claimed the name for other bytes.
        """
        self._finish(dist, sha256)

    def read_back(self, dist: Dist, sha256: str) -> None:
        """Compare what is stored; raises :class:`ReadBackMismatch`. The pages are written again if they lack it."""
        if not self.client.same(dist, sha256):
            raise ReadBackMismatch(
                f"{self.client.address} does not hold the bytes of {dist.filename} that were published",
                remedy="remove the damaged file there and publish again",
            )
        self.journal.note("read-back", dist.filename, sha256)

    def was_read_back(self, dist: Dist, sha256: str) -> bool:
        """Whether an earlier run on this machine has compared these bytes; the pages are looked at in any case."""
        self._write_pages(dist.name)
        return "read-back" in self.journal.events(dist.filename, sha256)

    def _finish(self, dist: Dist, sha256: str) -> None:
        there = self.client.sizes()
        evidence = tuple(p.name for p in (manifest_path(dist.path), attestation_path(dist.path)) if p.name in there)
        wheel = replace(describe(dist, sha256, (dist.size, 0, 0)), evidence=evidence)
        claim = json.dumps(asdict(wheel), sort_keys=True).encode()
        files = {f"{dist.filename}{_CLAIM}": claim, f"{dist.filename}.metadata": dist.metadata}
        self.client.put(files, replace=False)
        claimed = self._claim(dist)
        if claimed is None or claimed.sha256 != sha256:
            raise NameTaken(
                f"{self.client.address} keeps {dist.filename} for sha256 {claimed and claimed.sha256}, here: {sha256}",
                remedy=f"give this build a version of its own, or remove {dist.filename}{_CLAIM} there if that upload "
                "is never going to be finished",
            )
        if dist.filename not in there:
            self.journal.note("sending", dist.filename, sha256)
            self.client.upload(dist)
            self.journal.note("stored", dist.filename, sha256)
        self._write_pages(dist.name)

    def _claim(self, dist: Dist) -> IndexedWheel | None:
        name = f"{dist.filename}{_CLAIM}"
        found = self.client.read([name]).get(name)
        return load_wheel(json.loads(found)) if found else None

    def _write_pages(self, project: NormalizedName) -> None:
        """Pages of the project and of the root; again while another publisher adds wheels."""
        for _ in range(_ATTEMPTS):
            sizes = self.client.sizes()
            names = {name for name in sizes if name.endswith(".whl")}
            claims = [f"{n}{_CLAIM}" for n in sorted(names) if _project(n) == project and f"{n}{_CLAIM}" in sizes]
            wheels = [load_wheel(json.loads(data)) for _, data in sorted(self.client.read(claims).items())]
            files = pages.project_files(project, wheels, SIMPLE)
            files |= pages.root_files(_by_project({n: sizes[n] for n in names}), SIMPLE)
            self.client.put({path: text.encode("utf-8") for path, text in files.items()}, replace=True)
            if {name for name in self.client.sizes() if name.endswith(".whl")} == names:
                return


def _by_project(sizes: Mapping[str, int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, size in sizes.items():
        if project := _project(name):
            found.setdefault(project, []).append(size)
    return found


def _project(filename: str) -> NormalizedName | None:
    try:
        return parse_wheel_filename(filename)[0]
    except InvalidWheelFilename:
        return None
