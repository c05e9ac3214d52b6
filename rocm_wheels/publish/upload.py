"""One upload and what its failure means, layer by layer."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

import requests
from twine.package import PackageFile
from twine.utils import sanitize_url

from rocm_wheels.errors import (
    CredentialsRefused,
    NameTaken,
    RocmWheelsError,
    ServerFull,
    ServerUnreachable,
    UploadRefused,
    UploadTooLarge,
)
from rocm_wheels.gpu.datafiles import targets_of
from rocm_wheels.publish.simple import cause
from rocm_wheels.publish.target import Remote
from rocm_wheels.wheel import WheelArchive

_RETRY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class Answer:
    """How one attempt ended: a status and text, or ``lost`` when the connection broke after ``sent`` bytes."""

    status: int
    text: str
    sent: int
    lost: str = ""
    location: str = ""
    complete: bool = False

    @property
    def accepted(self) -> bool:
        """The server says that it stored the file."""
        return 200 <= self.status < 300

    @property
    def may_pass(self) -> bool:
        """Whether another attempt may end otherwise."""
        return bool(self.lost) or self.status in _RETRY_STATUS


def send(remote: Remote, package: PackageFile) -> Answer:
    """Upload once, streamed from disk; never raises for what the server or the network does."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # twine prints a line per file on stdout, the place of results
            response = remote.repository.upload(package, max_redirects=1)
    except (requests.RequestException, OSError) as error:
        return Answer(0, "", remote.progress.sent, lost=cause(error), complete=_all_sent(remote, package))
    with response:
        return Answer(
            response.status_code,
            _plain(f"{response.reason} {response.text}"),
            remote.progress.sent,
            location=response.headers.get("Location", ""),
        )


def explain(answer: Answer, package: PackageFile, server: str, previous: Answer | None) -> RocmWheelsError:
    """The error for an attempt after which the index does not hold the file."""
    name, where = package.basefilename, sanitize_url(server)
    said = f"{where} answers {answer.status} to {name}: {answer.text}"
    if answer.lost:
        return _lost(answer, name, where, previous)
    if answer.status in (401, 403):
        return CredentialsRefused(
            said,
            remedy="set TWINE_USERNAME and TWINE_PASSWORD, or store them with keyring or in ~/.pypirc; "
            "the account must be allowed to upload",
        )
    if answer.status == 413:
        return _too_large(answer, said, Path(package.filename))
    if answer.status == 507 or "no space left" in answer.text.lower():
        return ServerFull(said, remedy="free space on the server, then run the same command again: it continues")
    if answer.status == 409 or (answer.status == 400 and "exist" in answer.text.lower()):
        return NameTaken(
            f"{said}. The server claims to have the file but its index does not show it",
            remedy="look for a hidden or half-written file of this name on the server and remove it",
        )
    if answer.location:
        return UploadRefused(
            f"{where} redirects uploads to {sanitize_url(answer.location)}", remedy="publish to that address"
        )
    if answer.status in (404, 405):
        return UploadRefused(said, remedy="this address takes no uploads: give the one that twine would use")
    return UploadRefused(
        said, remedy="the server's own log has the reason; run the same command again when it is mended"
    )


def _lost(answer: Answer, name: str, where: str, previous: Answer | None) -> RocmWheelsError:
    if previous and previous.lost and _same_place(previous.sent, answer.sent) and not answer.complete:
        return UploadTooLarge(
            f"{where} closed the connection twice about {_mib(answer.sent)} into {name} ({answer.lost}): "
            "that is a size limit, not the network",
            remedy="raise the limit of the server (waitress and devpi: --max-request-body-size) or publish to dir:PATH",
        )
    return ServerUnreachable(
        f"the connection to {where} broke {_mib(answer.sent)} into {name}: {answer.lost}",
        remedy="run the same command again: it continues with what is missing",
    )


def _too_large(answer: Answer, said: str, wheel: Path) -> UploadTooLarge:
    remedy = "raise the body limit of the proxy or server (devpi and waitress: --max-request-body-size)"
    if "nginx" in answer.text.lower():
        remedy = "raise client_max_body_size of the nginx in front of the index"
    return UploadTooLarge(
        f"{said}\n  largest in it: {_largest(wheel)}",
        remedy=f"{remedy}, split it (`invoke layers`), keep fewer GPU targets (`invoke slim`), or publish to dir:PATH",
    )


def _largest(wheel: Path) -> str:
    """The members that take most of the wheel, and what each GPU target's data takes."""
    with WheelArchive.open(wheel) as archive:
        members = [(m.compressed_size, m.name) for m in archive.members]
    targets: dict[str, int] = {}
    for size, name in members:
        for target in targets_of(name):
            targets[target] = targets.get(target, 0) + size
    parts = [(size, name) for size, name in sorted(members, reverse=True)[:3]]
    parts += [(size, f"data of {target}") for target, size in sorted(targets.items())]
    return ", ".join(f"{name} {_mib(size)}" for size, name in parts)


def _all_sent(remote: Remote, package: PackageFile) -> bool:
    return remote.progress.sent > Path(package.filename).stat().st_size


def _same_place(one: int, other: int) -> bool:
    """Socket buffers blur where a connection was closed; a limit still closes at nearly the same byte.

    Below a few buffers the place says nothing.
    """
    return min(one, other) > 1 << 20 and abs(one - other) <= max(one, other) // 10


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _plain(text: str) -> str:
    """A server's answer as one short line without markup."""
    text = re.sub(r"<(style|script)\b.*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL | re.IGNORECASE)
    text = re.sub(r"//[^/@\s]*@", "//", " ".join(text.split()))
    return text[:300]
