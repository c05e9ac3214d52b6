"""Files from elsewhere: downloaded beside, verified by sha256, renamed in; unpacked without trusting them."""

from __future__ import annotations

import base64
import errno
import hashlib
import http
import http.client
import json
import lzma
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

from filelock import FileLock

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import NoSpace, PinMismatch, SourceUnreachable
from rocm_wheels.release import Archive
from rocm_wheels.source.address import split_credentials

_CHUNK = 1 << 20


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_pin(path: Path, wanted: str) -> None:
    """Raise :class:`PinMismatch` unless the file at ``path`` has the sha256 ``wanted``."""
    found = sha256(path)
    if found != wanted:
        raise PinMismatch(
            f"{path.name} has sha256 {found}, the release data pins {wanted}",
            remedy="the file was changed or replaced; do not build from it unless you know why, then update the pin",
        )


def download(archive: Archive, *, settings: Settings, console: Console) -> Path:
    """The file of ``archive`` in the cache, fetched if it is not there; what a broken download left is gone on with.

    Raises :class:`SourceUnreachable` when no address answers and :class:`PinMismatch` for other content.
    """
    folder = settings.cache / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{archive.sha256[:16]}-{archive.urls[0].rpartition('/')[2]}"
    with FileLock(f"{target}.lock"):
        if target.is_file() and sha256(target) == archive.sha256:
            return target
        beside = target.with_name(f".{target.name}.part")
        _first_that_fits(_addresses(archive, settings), beside, archive.sha256, console)
        beside.replace(target)
        _mark(beside).unlink()
    return target


def _addresses(archive: Archive, settings: Settings) -> list[str]:
    mirror = settings.source_mirror.rstrip("/")
    own = [f"{mirror}/{url.rpartition('/')[2]}" for url in archive.urls[:1]] if mirror else []
    return [*own, *archive.urls]


def _first_that_fits(addresses: Sequence[str], target: Path, wanted: str, console: Console) -> None:
    """Download to ``target`` from the first address that has the pinned content, a login page being none."""
    problems = []
    other: PinMismatch | None = None
    for address in addresses:
        try:
            _fetch(address, target, wanted, console)
            return
        except PinMismatch as error:
            other = error
            problems.append(f"{address}: {error.message}")
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG):
                _forget(target)
                raise NoSpace(f"{target.parent} cannot take the download: {error}") from error
            problems.append(f"{address}: {getattr(error, 'reason', None) or error or type(error).__name__}")
    text = "\n  - ".join(problems)
    if other:
        raise PinMismatch(f"no address has the pinned content:\n  - {text}", remedy=other.remedy)
    raise SourceUnreachable(
        f"the source could not be fetched:\n  - {text}",
        remedy="without that network, put the file into a directory and set source_mirror to it",
    )


def _fetch(address: str, target: Path, wanted: str, console: Console) -> None:
    """One address, from the start if going on led to other content; keeps what broke off, drops what is wrong."""
    for last in (False, True):
        try:
            with console.step(f"fetch {address}"):
                goes_on = _download(address, target, console)
            check_pin(target, wanted)
            return
        except PinMismatch:
            _forget(target)
            if last or not goes_on:
                raise
        except urllib.error.HTTPError as error:
            if last or error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            _forget(target)


def _forget(target: Path) -> None:
    target.unlink(missing_ok=True)
    _mark(target).unlink(missing_ok=True)


def _mark(target: Path) -> Path:
    """Where it stands which file of which address ``target`` is the beginning of."""
    return target.with_name(f"{target.name}.from")


def _download(address: str, target: Path, console: Console) -> bool:
    """One file; whether it went on where an earlier attempt broke off, which the server must allow.

    Raises OSError for an answer that breaks off, which ``read`` with a size takes for its end.
    """
    with urllib.request.urlopen(_request(address, target), timeout=60) as answer:
        goes_on: bool = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        have = target.stat().st_size if goes_on else 0
        _remember(address, answer.headers, target)
        size = have + int(answer.headers.get("Content-Length") or 0)
        free = shutil.disk_usage(target.parent).free
        if size - have > free:
            raise NoSpace(f"{address} has {size >> 20} MiB, {target.parent} has {free >> 20} MiB free")
        with (
            console.progress(f"fetch {target.name}", size or 1) as advance,
            target.open("ab" if goes_on else "wb") as file,
        ):
            advance(have)
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                advance(len(chunk))
    found = target.stat().st_size
    if size > have and found != size:
        raise ConnectionError(f"broke off after {found} of {size} bytes")
    return goes_on


def _request(address: str, target: Path) -> urllib.request.Request:
    """Ask for the rest of what is there, if the server says by its mark that it is the rest of the same file."""
    plain, user, password = split_credentials(address)
    request = urllib.request.Request(plain if "://" in plain else Path(plain).absolute().as_uri())
    if user:
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    have = target.stat().st_size if target.is_file() else 0
    known = json.loads(_mark(target).read_text("utf-8")) if _mark(target).is_file() else {}
    if have and known.get("address") == plain and known.get("mark"):
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", known["mark"])
    return request


def _remember(address: str, headers: Message, target: Path) -> None:
    """Write down where the beginning comes from and the server's strong mark of its content (RFC 9110, 13.1.5)."""
    etag = headers.get("ETag") or ""
    found = etag if etag.startswith('"') else headers.get("Last-Modified") or ""
    _mark(target).write_text(json.dumps({"address": split_credentials(address)[0], "mark": found}), "utf-8")


def unpack(archive: Path, into: Path) -> None:
    """Unpack a tar archive so that the content of its single top directory lies in ``into``.

    Raises :class:`PinMismatch` for an archive that holds unsafe names or is damaged.
    """
    into.mkdir(parents=True, exist_ok=True)
    beside = into.with_name(f".{into.name}.{os.getpid()}.unpack")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(beside, filter="data")
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise PinMismatch(f"{archive.name} cannot be unpacked: {error}") from error
        raise NoSpace(f"{into.parent} is too small for {archive.name}") from error
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise PinMismatch(f"{archive.name} cannot be unpacked: {error}") from error
    top = list(beside.iterdir())
    root = top[0] if len(top) == 1 and top[0].is_dir() else beside
    for entry in root.iterdir():
        target = into / entry.name
        if target.is_dir() and not any(target.iterdir()):
            target.rmdir()  # an empty place for a component, as a submodule leaves it
        entry.rename(target)
    shutil.rmtree(beside)
