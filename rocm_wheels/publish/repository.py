"""Publishing to an upload repository (pypiserver, devpi, whatever twine can talk to)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zipfile import BadZipFile

from packaging.utils import NormalizedName
from twine.exceptions import TwineException
from twine.package import PackageFile
from twine.utils import sanitize_url

from rocm_wheels.console import Console
from rocm_wheels.errors import NameTaken, ReadBackMismatch, UploadTooLarge, UsageError
from rocm_wheels.publish.dist import Dist
from rocm_wheels.publish.journal import Journal
from rocm_wheels.publish.probe import probe
from rocm_wheels.publish.simple import ATTEMPTS, IndexedFile, back_off, file_key
from rocm_wheels.publish.target import Remote
from rocm_wheels.publish.upload import Answer, explain, send

PROBE_FROM = 32 << 20  # below this an upload costs no more than asking first


@dataclass(frozen=True)
class RepositoryStore:
    """The repository as :func:`rocm_wheels.publish.run.publish` uses it."""

    remote: Remote
    journal: Journal
    console: Console

    @property
    def index_url(self) -> str:
        """The address that pip installs from, without credentials."""
        return sanitize_url(self.remote.index.url)

    def filenames(self, project: NormalizedName) -> tuple[str, ...]:
        """The files that the index lists for a project."""
        return tuple(file.filename for file in self.remote.index.files(project).values())

    def warning(self, project: NormalizedName) -> str:
        """What is risky about this index: passing questions on lets a public package of the same name in."""
        elsewhere = self.remote.index.forwards_to(project)
        if not elsewhere:
            return ""
        return (
            f"{self.index_url} sends whoever asks for a name it does not know to {elsewhere}: "
            "a package of the same name there would be installed; run the server with --disable-fallback"
        )

    def sha256(self, dist: Dist) -> str | None:
        """The SHA-256 of the file of this name on the index, or None when it is not there."""
        file = self._find(dist)
        if file is None:
            return None
        return file.sha256 or self._download(dist, file)

    def attach(self, dist: Dist, files: Mapping[str, bytes]) -> None:
        """Upload repositories take wheels only; manifest and attestation stay beside the wheel on this machine."""

    def put(self, dist: Dist, sha256: str) -> None:
        """Upload until the index shows the file. Never sends it again without asking the index first.

        Raises the error of the layer that refused it (see :func:`rocm_wheels.publish.upload.explain`).
        """
        package = _package(dist)
        self.journal.note("sending", dist.filename, sha256)
        if dist.size >= PROBE_FROM and (refusal := probe(self.remote, dist.size)):
            raise explain(refusal, package, self.remote.repository.url, None)
        previous: Answer | None = None
        for attempt in range(ATTEMPTS):
            back_off(attempt)
            answer = self._send(dist, package)
            if self._arrived(dist, sha256, answer):
                self.journal.note("stored", dist.filename, sha256)
                return
            error = explain(answer, package, self.remote.repository.url, previous)
            # A second loss at the same byte is a limit: more attempts would only send the same gigabytes again.
            if not answer.may_pass or isinstance(error, UploadTooLarge):
                raise error
            self.console.warn(f"attempt {attempt + 1} of {ATTEMPTS}: {error.message}")
            previous = answer
        raise error

    def read_back(self, dist: Dist, sha256: str) -> None:
        """Download the published file and compare.

        Raises :class:`ReadBackMismatch` when the server hands out other bytes than its page or this machine has.
        """
        file = self._find(dist)
        if file is None:
            raise ReadBackMismatch(
                f"{dist.filename} was accepted but the page of {dist.name} at {self.index_url} does not list it",
                remedy="check the storage of the server; run the same command again when it is mended",
            )
        found = self._download(dist, file)
        if found != sha256:
            raise ReadBackMismatch(
                f"{self.index_url} hands out other bytes for {dist.filename}: sha256 {found}, published was {sha256}",
                remedy="the file on the server is cut or was replaced, or a cache in front serves an old one: "
                "remove it there and publish again",
            )
        self.journal.note("read-back", dist.filename, sha256)

    def was_read_back(self, dist: Dist, sha256: str) -> bool:
        """Whether an earlier run on this machine has already compared these bytes."""
        return "read-back" in self.journal.events(dist.filename, sha256)

    def _send(self, dist: Dist, package: PackageFile) -> Answer:
        with self.console.progress(f"upload {dist.filename}", dist.size) as advance:
            self.remote.progress.advance = advance
            return send(self.remote, package)

    def _arrived(self, dist: Dist, sha256: str, answer: Answer) -> bool:
        """Ask the index whether it holds the file now, whatever the server answered."""
        found = self.sha256(dist)
        if found == sha256:
            return True
        if found is None and answer.accepted:
            return True  # the page may lag behind; read_back decides
        if found is None:
            return False
        if answer.accepted:
            raise ReadBackMismatch(
                f"{self.index_url} stored {dist.filename} with sha256 {found}, sent was {sha256}",
                remedy="check the disk of the server, remove the file there, publish again",
            )
        return self.settle(dist, sha256, found) is not None

    def settle(self, dist: Dist, sha256: str, found: str) -> str | None:
        """Decide over other bytes under the name: a server may still be writing what a killed run sent to it.

        Returns the expected hash or None once the server shows that; raises when the other bytes stay as they are.
        """
        for attempt in range(1, ATTEMPTS):
            back_off(attempt)
            now = self.sha256(dist)
            if now in (None, sha256):
                return now
            if now == found:
                break
            found = str(now)
        self._refuse_half_written(dist)
        raise name_taken(dist, sha256, found, self.index_url)

    def _refuse_half_written(self, dist: Dist) -> None:
        """A server that ran full or died may keep the beginning of a file and show it like a whole one."""
        file = self._find(dist)
        kept = self.remote.index.size(file) if file else None
        if kept is not None and kept < dist.size:
            raise ReadBackMismatch(
                f"{self.index_url} kept {kept} of {dist.size} bytes of {dist.filename} from an upload that failed",
                remedy="free space on the server if it is full, remove the file there, then run the same command again "
                "(pypiserver keeps only whole uploads once waitress is installed beside it)",
            )

    def _find(self, dist: Dist) -> IndexedFile | None:
        return self.remote.index.files(dist.name).get(file_key(dist.filename))

    def _download(self, dist: Dist, file: IndexedFile) -> str:
        with self.console.progress(f"read back {dist.filename}", dist.size) as advance:
            return self.remote.index.sha256(file, advance)


def name_taken(dist: Dist, sha256: str, found: str, where: str) -> NameTaken:
    """The error for other bytes under the same name, the same for every kind of target."""
    return NameTaken(
        f"{where} has {dist.filename} with other bytes: sha256 {found} there, {sha256} here; "
        "whoever pinned the published hash could no longer install",
        remedy="give the new build a version of its own (a longer local label, such as +rocm5.7.1)",
    )


def _package(dist: Dist) -> PackageFile:
    try:
        return PackageFile.from_filename(str(dist.path), None)
    except (TwineException, BadZipFile, OSError) as error:
        raise UsageError(f"{dist.path} cannot be published: {error}", remedy=f"invoke verify {dist.path}") from None
