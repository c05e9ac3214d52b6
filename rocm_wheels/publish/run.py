"""Publish a set of wheels: decide from what the index holds, send what is missing, read everything back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from packaging.utils import NormalizedName, canonicalize_name

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import UsageError
from rocm_wheels.publish.attest import attest, attestation_path
from rocm_wheels.publish.closure import also_public, check_closure
from rocm_wheels.publish.directory import DirectoryStore
from rocm_wheels.publish.dist import Dist, in_dependency_order, open_dist, sha256_of
from rocm_wheels.publish.gpus import wheel_archs
from rocm_wheels.publish.index import write_file
from rocm_wheels.publish.journal import journal_for
from rocm_wheels.publish.manifest import manifest, manifest_path, render
from rocm_wheels.publish.pages import human_size
from rocm_wheels.publish.repository import RepositoryStore
from rocm_wheels.publish.rsync import RsyncClient
from rocm_wheels.publish.s3 import S3Client
from rocm_wheels.publish.shim import renamed_without_shim
from rocm_wheels.publish.storage import StorageStore
from rocm_wheels.publish.target import connect, parse_target, refuse_public, repository_url

_NOBODYS_NAME = canonicalize_name("rocm-wheels-asks-for-nothing")
Outcome = Literal["missing", "present", "published"]


class Store(Protocol):
    """What a target can do: look up, take, give back."""

    @property
    def index_url(self) -> str:
        """Where pip reads this index."""

    def filenames(self, project: NormalizedName) -> tuple[str, ...]:
        """Files that it lists for a project."""

    def warning(self, project: NormalizedName) -> str:
        """What the user should know about the target, or ""."""

    def sha256(self, dist: Dist) -> str | None:
        """Hash of the file of this name, or None."""

    def settle(self, dist: Dist, sha256: str, found: str) -> str | None:
        """Called when ``found`` is not ``sha256``: raise, or return what is there after all."""

    def attach(self, dist: Dist, files: Mapping[str, bytes]) -> None:
        """Keep the files that go with a wheel, where the target can; those that are there stay."""

    def put(self, dist: Dist, sha256: str) -> None:
        """Store a wheel that is missing."""

    def read_back(self, dist: Dist, sha256: str) -> None:
        """Raise unless it hands out exactly these bytes."""

    def was_read_back(self, dist: Dist, sha256: str) -> bool:
        """Whether these bytes have been compared before."""


@dataclass(frozen=True)
class Published:
    """One wheel of the report. ``missing`` is what a dry run would have uploaded."""

    filename: str
    requirement: str
    sha256: str
    size: int
    outcome: Outcome


@dataclass(frozen=True)
class PublishReport:
    """Everything that was published or already there, in the order in which it was sent."""

    target: str
    index_url: str
    wheels: tuple[Published, ...]
    warnings: tuple[str, ...] = ()

    def hashes(self) -> dict[str, list[str]]:
        """The accepted SHA-256 digests by ``name==version``, as :func:`rocm_wheels.publish.install_back` takes them."""
        found: dict[str, list[str]] = {}
        for wheel in self.wheels:
            found.setdefault(wheel.requirement, []).append(wheel.sha256)
        return found

    def as_dict(self) -> dict[str, object]:
        """The report as ``--json`` prints it."""
        return {
            "target": self.target,
            "index_url": self.index_url,
            "wheels": [vars(w) for w in self.wheels],
            "warnings": list(self.warnings),
        }


def publish(
    wheels: Iterable[Path],
    target: str,
    *,
    settings: Settings,
    console: Console,
    dry_run: bool = False,
    verify: Callable[[Sequence[Path]], Mapping[str, Sequence[str]]] | None = None,
    key: Path | None = None,
    recheck: bool = False,
) -> PublishReport:
    """Bring wheels to ``target`` so that exactly these bytes can be installed from it; done twice it does nothing.

    ``target`` is what :func:`rocm_wheels.publish.target.parse_target` takes. ``verify`` is called with the paths before
    anything is sent: it raises when a wheel must not go out, and returns the checks that were waived by file name, for
    the manifest. With a private ``key`` each manifest is signed and left beside its wheel.
    ``recheck`` downloads and compares even what an earlier run on this machine has compared. Nothing is sent before
    every wheel of the set has been found publishable.

    Raises the publish errors 90 to 99 of :mod:`rocm_wheels.errors`, :class:`UsageError` for a wheel or target that
    is none, :class:`NoSpace` for a full directory.
    """
    dists = _open_all(wheels)
    waived: Mapping[str, Sequence[str]] | None = None
    if verify is not None:
        with console.step(f"verify {len(dists)} wheels"):
            waived = verify([d.path for d in dists])
    store = _open_store(target, dists, settings, console)
    warnings = (
        *check_closure(dists, store.filenames),
        *renamed_without_shim(dists, store.filenames),
        *also_public(dists, settings.public_names),
        *filter(None, [store.warning(_NOBODYS_NAME)]),
    )
    for warning in warnings:
        console.warn(warning)
    plan = tuple(_look_up(dist, store, console) for dist in dists)
    if not dry_run:
        for dist, entry in zip(dists, plan, strict=True):
            store.attach(dist, _evidence(dist, entry.sha256, waived, key))
        plan = tuple(_bring(d, entry, store, console, recheck) for d, entry in zip(dists, plan, strict=True))
    return PublishReport(str(parse_target(target)), store.index_url, plan, warnings)


def _evidence(
    dist: Dist, sha256: str, waived: Mapping[str, Sequence[str]] | None, key: Path | None
) -> dict[str, bytes]:
    """The files that go with a wheel, by name: its manifest and, with a key, the attestation over it."""
    checks = {"verified": waived is not None, "allowed": sorted((waived or {}).get(dist.filename, ()))}
    content = manifest(dist, sha256, archs=wheel_archs(dist.path), checks=checks)
    files = {manifest_path(dist.path).name: render(content)}
    if key:
        signed = attest(content, key)
        try:
            write_file(attestation_path(dist.path), signed)
        except OSError as error:
            raise UsageError(
                f"{attestation_path(dist.path)} cannot be written: {error.strerror}",
                remedy="attestations are left beside the wheels: publish from a directory that you may write to",
            ) from None
        files[attestation_path(dist.path).name] = signed
    return files


def _open_all(wheels: Iterable[Path]) -> tuple[Dist, ...]:
    dists = in_dependency_order(open_dist(path) for path in wheels)
    names = [d.filename for d in dists]
    double = sorted({name for name in names if names.count(name) > 1})
    if not dists or double:
        raise UsageError(
            f"the same wheel was given twice: {', '.join(double)}" if double else "no wheels were given",
            remedy="name each wheel once: invoke publish dist/*.whl",
        )
    return dists


def _open_store(target: str, dists: Sequence[Dist], settings: Settings, console: Console) -> Store:
    parsed = parse_target(target)
    if parsed.directory:
        return DirectoryStore(parsed.directory, console)
    if parsed.rsync or parsed.s3:
        client = RsyncClient(parsed.rsync, console) if parsed.rsync else S3Client.open(parsed.s3, console)
        journal = journal_for(str(parsed), settings.cache)
        return StorageStore(client, journal, console, settings.index_url or f"{client.address}/simple/")
    address = repository_url(parsed)
    refuse_public(parsed, address, dists)
    return RepositoryStore(connect(parsed, settings), journal_for(address, settings.cache), console)


def _look_up(dist: Dist, store: Store, console: Console) -> Published:
    with console.progress(f"hash {dist.filename}", dist.size) as advance:
        sha256 = sha256_of(dist.path, advance)
    found = store.sha256(dist)
    if found not in (None, sha256):
        found = store.settle(dist, sha256, str(found))
    return Published(dist.filename, dist.requirement, sha256, dist.size, "missing" if found is None else "present")


def _bring(dist: Dist, entry: Published, store: Store, console: Console, recheck: bool) -> Published:
    if entry.outcome == "missing":
        with console.step(f"publish {dist.filename} ({human_size(dist.size)})"):
            store.put(dist, entry.sha256)
            store.read_back(dist, entry.sha256)
        return Published(dist.filename, dist.requirement, entry.sha256, dist.size, "published")
    if recheck or not store.was_read_back(dist, entry.sha256):
        store.read_back(dist, entry.sha256)
    console.line(f"• {dist.filename} is already there")
    return entry
