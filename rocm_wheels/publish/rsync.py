"""Static indexes where rsync reaches: ``rsync://host/module/path``, or ``rsync:user@host:/path`` over ssh."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rocm_wheels.config import CREDENTIALS
from rocm_wheels.console import Console
from rocm_wheels.errors import CredentialsRefused, RocmWheelsError, ServerFull, ServerUnreachable, UploadRefused
from rocm_wheels.publish.dist import Dist
from rocm_wheels.publish.simple import ATTEMPTS, back_off

_ENTRY = re.compile(r"^-\S+\s+([\d,]+)\s+\S+\s+\S+\s(.+)$", re.MULTILINE)
# rsync(1), EXIT VALUES: socket I/O, protocol stream, signals, timeouts; 255 is ssh's own.
_LOST = frozenset({10, 12, 20, 30, 35, 255})
_NOT_THERE = frozenset({3, 23})


@dataclass(frozen=True)
class RsyncClient:
    """rsync at ``place``; a daemon's password comes from RSYNC_PASSWORD or ROCM_WHEELS_INDEX_PASSWORD."""

    place: str
    console: Console

    @property
    def address(self) -> str:
        """The place without user."""
        return re.sub(r"//[^/@]*@", "//", self.place)

    def sizes(self) -> dict[str, int]:
        """Sizes of the files of the directory; empty when there is none yet."""
        listed = self._run("--list-only", "--no-human-readable", f"{self.place}/", missing_ok=True)
        return {name: int(size.replace(",", "")) for size, name in _ENTRY.findall(listed)}

    def read(self, names: list[str]) -> dict[str, bytes]:
        """Small files, in one call; by a filter, since rsync 3.5 loses the names of a list below a module."""
        if not names:
            return {}
        with tempfile.TemporaryDirectory() as folder:
            wanted = Path(folder) / "names"
            wanted.write_text("".join(f"/{name}\n" for name in names), "utf-8")
            into = Path(folder) / "files"
            options = ("--recursive", f"--include-from={wanted}", "--exclude=*")
            self._run(*options, f"{self.place}/", f"{into}/", missing_ok=True)
            return {path.name: path.read_bytes() for path in into.rglob("*") if path.is_file()}

    def put(self, files: Mapping[str, bytes], *, replace: bool) -> None:
        """Small files in the order given, which rsync would otherwise sort; each is renamed in by rsync."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            keep = () if replace else ("--ignore-existing",)
            self._run(
                "--recursive", "--checksum", "--mkpath", "--chmod=D755,F644", *keep, f"{folder}/", f"{self.place}/"
            )

    def upload(self, dist: Dist) -> None:
        """The wheel; what a broken connection has brought is used by the next attempt."""
        options = ("--partial-dir=.rsync-partial", "--chmod=F644", "--mkpath")
        self._run(*options, str(dist.path), f"{self.place}/")

    def same(self, dist: Dist, sha256: str) -> bool:
        """Compared by rsync's own checksum over all bytes on both sides."""
        said = self._run("--checksum", "--dry-run", "--itemize-changes", str(dist.path), f"{self.place}/")
        return f" {dist.filename}" not in said

    def _run(self, *words: str, missing_ok: bool = False) -> str:
        environment = {**os.environ, "LC_ALL": "C"}
        if password := os.environ.get(CREDENTIALS[1]):
            environment["RSYNC_PASSWORD"] = password
        for attempt in range(ATTEMPTS):
            back_off(attempt)
            try:
                done = subprocess.run(
                    ["rsync", "--timeout=120", *words],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
            except FileNotFoundError:
                raise UploadRefused("rsync is not installed", remedy="apt-get install rsync") from None
            absent = missing_ok and done.returncode in _NOT_THERE and "No such file" in done.stderr
            if done.returncode == 0 or absent:
                return done.stdout
            error = self._explain(done.returncode, done.stderr)
            raced = "mkdir" in done.stderr and "File exists" in done.stderr  # another publisher made it just now
            if not isinstance(error, ServerUnreachable) and not raced:
                raise error
            self.console.warn(f"attempt {attempt + 1} of {ATTEMPTS}: {error.message}")
        raise error

    def _explain(self, code: int, said: str) -> RocmWheelsError:
        words = re.sub(r"//[^/@\s]*@", "//", " ".join(said.split()))[:400]
        text = f"rsync to {self.address} ends with {code}: {words}"
        if "auth failed" in said or "Permission denied (publickey" in said or "password" in said.lower():
            return CredentialsRefused(text, remedy="set RSYNC_PASSWORD for a daemon, or give ssh a key that it accepts")
        if "No space left" in said or "Disk quota exceeded" in said:
            return ServerFull(text, remedy="free space on the server, then run the same command again: it continues")
        if code in _LOST:
            return ServerUnreachable(text, remedy="run the same command again: it continues with what is missing")
        return UploadRefused(text, remedy="rsync's own words are above; a daemon's module must not be read only")
