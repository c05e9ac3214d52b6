"""Publishing to a directory that any web server can hand out."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import NormalizedName

from rocm_wheels.console import Console
from rocm_wheels.errors import NoSpace, ReadBackMismatch, RocmWheelsError, UsageError
from rocm_wheels.publish.dist import CHUNK, Dist, sha256_of
from rocm_wheels.publish.index import SIMPLE, index_lock, indexed_files, update_index, write_file
from rocm_wheels.publish.repository import name_taken


@dataclass(frozen=True)
class DirectoryStore:
    """The directory as :func:`rocm_wheels.publish.run.publish` uses it."""

    directory: Path
    console: Console

    @property
    def index_url(self) -> str:
        """The address for pip on this machine; a web server gives it another beginning."""
        return (self.directory / SIMPLE).as_uri() + "/"

    def filenames(self, project: NormalizedName) -> tuple[str, ...]:
        """The wheels of a project that the directory holds."""
        return tuple(file.filename for file in indexed_files(self.directory) if file.project == project)

    def warning(self, project: NormalizedName) -> str:
        """Nothing is risky about files."""
        return ""

    def sha256(self, dist: Dist) -> str | None:
        """The SHA-256 of the file of this name in the directory, or None."""
        path = self.directory / dist.filename
        return sha256_of(path) if path.is_file() else None

    def attach(self, dist: Dist, files: Mapping[str, bytes]) -> None:
        """Lay the files that go with a wheel beside its place; those of an earlier publication stay."""
        try:
            for name, content in files.items():
                if not (self.directory / name).exists():
                    write_file(self.directory / name, content)
        except OSError as error:
            raise self._explain(error, dist) from None

    def put(self, dist: Dist, sha256: str) -> None:
        """Copy the wheel beside its place, rename it in without overwriting, then bring the pages up to date.

        Raises :class:`NoSpace` when the file system is full, :class:`UsageError` when it may not be written,
        :class:`NameTaken` when another publisher was faster with other bytes.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._explain(error, dist) from None
        final, part = self.directory / dist.filename, self.directory / f".{dist.filename}.{os.getpid()}.part"
        with index_lock(self.directory):
            try:
                copied = self._copy(dist, part)
                if copied != sha256:
                    raise ReadBackMismatch(f"{dist.path} changed while it was copied", remedy="publish again")
                self._place(dist, sha256, part, final)
            except OSError as error:
                raise self._explain(error, dist) from None
            finally:
                part.unlink(missing_ok=True)
        update_index(self.directory, console=self.console)

    def _place(self, dist: Dist, sha256: str, part: Path, final: Path) -> None:
        """Rename under the lock; another publisher may have been faster."""
        if not final.exists():
            part.rename(final)
        elif (found := sha256_of(final)) != sha256:
            raise name_taken(dist, sha256, found, str(self.directory))

    def settle(self, dist: Dist, sha256: str, found: str) -> str | None:
        """A file in the directory is whole, since it was renamed in: other bytes are other bytes."""
        raise name_taken(dist, sha256, found, str(self.directory))

    def read_back(self, dist: Dist, sha256: str) -> None:
        """Read the file in the directory again and compare."""
        found = self.sha256(dist)
        if found != sha256:
            raise ReadBackMismatch(
                f"{self.directory / dist.filename} has sha256 {found}, published was {sha256}",
                remedy="remove the damaged file and publish again",
            )

    def was_read_back(self, dist: Dist, sha256: str) -> bool:
        """:meth:`sha256` has just read the file itself, so there is nothing to compare again."""
        return True

    def _explain(self, error: OSError, dist: Dist) -> RocmWheelsError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return NoSpace(
                f"{self.directory} has no room for {dist.filename} ({dist.size >> 20} MiB)",
                remedy="free space there, then run the same command again",
            )
        return UsageError(
            f"{dist.filename} cannot be written to {self.directory}: {error.strerror}",
            remedy="name a directory that you may write to",
        )

    def _copy(self, dist: Dist, part: Path) -> str:
        digest = hashlib.sha256()
        with self.console.progress(f"copy {dist.filename}", dist.size) as advance:
            with dist.path.open("rb") as source, part.open("wb") as sink:
                while piece := source.read(CHUNK):
                    digest.update(piece)
                    sink.write(piece)
                    advance(len(piece))
                sink.flush()
                os.fsync(sink.fileno())
        part.chmod(0o644)
        return digest.hexdigest()
