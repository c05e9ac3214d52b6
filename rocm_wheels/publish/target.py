"""Where wheels go: a repository that takes uploads, or a directory that a web server hands out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests_toolbelt import MultipartEncoderMonitor
from twine import repository as twine_repository
from twine import utils as twine_utils
from twine.exceptions import NonInteractive, TwineException
from twine.repository import Repository
from twine.settings import Settings as TwineSettings

from rocm_wheels.config import CREDENTIALS, Settings
from rocm_wheels.errors import PublicIndexRefused, UsageError
from rocm_wheels.publish.dist import Dist
from rocm_wheels.publish.simple import ACCEPT, Index, expect_ok, get, leaves_host

_PUBLIC = (
    twine_utils.DEFAULT_REPOSITORY,
    twine_utils.TEST_REPOSITORY,
    twine_repository.LEGACY_PYPI,
    twine_repository.LEGACY_TEST_PYPI,
    twine_repository.WAREHOUSE_WEB,
    twine_repository.OLD_WAREHOUSE,
)
PUBLIC_HOSTS = frozenset(urlsplit(url).hostname for url in _PUBLIC)


@dataclass(frozen=True)
class Target:
    """A parsed target: exactly one of the fields is set."""

    directory: Path | None = None
    repository: str = ""
    rsync: str = ""
    s3: str = ""

    def __str__(self) -> str:
        if self.s3:
            return f"s3://{self.s3}"
        return str(self.directory) if self.directory else twine_utils.sanitize_url(self.rsync or self.repository)


def parse_target(text: str) -> Target:
    """A target from what the user wrote.

    ``dir:PATH`` or a path, an http(s) address, ``rsync://HOST/MODULE/PATH`` or ``rsync:HOST:/PATH``,
    ``s3://BUCKET/PREFIX``, or a name from ``.pypirc``.

    Raises :class:`UsageError` for nothing and for schemes that are not served.
    """
    if not text:
        raise UsageError(
            "no target to publish to",
            remedy="invoke publish --target http://127.0.0.1:8080/ (or dir:/srv/wheels), or set ROCM_WHEELS_INDEX",
        )
    if text.startswith("dir:"):
        return Target(directory=Path(text.removeprefix("dir:")).expanduser().absolute())
    if text.startswith("rsync:") and (place := text.removeprefix("rsync:").rstrip("/")).strip("/"):
        if urlsplit(f"rsync:{place}").password:
            raise UsageError(
                "an rsync address takes no password, every user could read it", remedy="set RSYNC_PASSWORD"
            )
        return Target(rsync=f"rsync:{place}" if place.startswith("//") else place)
    if text.startswith("s3://") and text.removeprefix("s3://").strip("/"):
        return Target(s3=text.removeprefix("s3://").rstrip("/"))
    scheme = re.match(r"([a-z][a-z0-9+.-]*):", text, re.IGNORECASE)
    if scheme and scheme[1].lower() in ("http", "https"):
        return Target(repository=text)
    if scheme:
        raise UsageError(
            f"{scheme[1]}: targets are not served",
            remedy="publish to http(s), rsync:, s3: or dir:PATH, a static index to copy with a client of your own",
        )
    if "/" in text or Path(text).is_dir():
        return Target(directory=Path(text).expanduser().absolute())
    return Target(repository=text)


def refuse_public(target: Target, url: str, dists: Iterable[Dist]) -> None:
    """Stop before a wheel with a local version label goes to a public index, which refuses it after the upload."""
    local = sorted(d.filename for d in dists if d.version.local)
    if local and urlsplit(url).hostname in PUBLIC_HOSTS:
        raise PublicIndexRefused(
            f"{target} is a public index and takes no local version labels ({', '.join(local)})",
            remedy="publish to an index of your own: invoke publish --target http://host:8080/ or dir:/srv/wheels",
        )


@dataclass(frozen=True)
class Remote:
    """An upload repository with its reading side."""

    repository: Repository
    index: Index
    progress: ProgressAdapter


class ProgressAdapter(HTTPAdapter):
    """Tells how much of an upload has been read for sending; uploads are never repeated blindly."""

    def __init__(self) -> None:
        super().__init__()
        self.advance: Callable[[int], None] = lambda _: None
        self.sent = 0

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send; the body of an upload reports to :attr:`advance` while it is read."""
        if isinstance(request.body, MultipartEncoderMonitor):
            self.sent = 0
            request.body.callback = self._on_read
        return super().send(request, *args, **kwargs)

    def _on_read(self, monitor: MultipartEncoderMonitor) -> None:
        step, self.sent = monitor.bytes_read - self.sent, monitor.bytes_read
        self.advance(step)


def repository_url(target: Target) -> str:
    """The upload address without credentials, resolved through ``.pypirc`` when the target is a name."""
    return str(_twine_settings(target, {}).repository_config["repository"])


def connect(target: Target, settings: Settings, environ: Mapping[str, str] = os.environ) -> Remote:
    """Open the session of an upload target with the credentials that this machine has for it.

    Credentials come from, in this order: the address itself, ROCM_WHEELS_INDEX_USERNAME and …_PASSWORD, TWINE_USERNAME
    and TWINE_PASSWORD, ``.pypirc``, keyring. None found is no error: an open server wants none.
    """
    twine = _twine_settings(target, environ)
    url = str(twine.repository_config["repository"])
    username, password = _credentials(twine)
    repository = Repository(url, username, password, disable_progress_bar=True)
    repository.set_certificate_authority(twine.cacert or settings.ca_bundle or None)
    repository.set_client_certificate(twine.client_cert)
    progress = ProgressAdapter()
    for scheme in ("http://", "https://"):
        repository.session.mount(scheme, progress)
    return Remote(
        repository, Index(_simple_url(repository.session, url, settings.index_url), repository.session), progress
    )


def _twine_settings(target: Target, environ: Mapping[str, str]) -> TwineSettings:
    is_url = "://" in target.repository
    username, password = (
        environ.get(own) or environ.get(twine)
        for own, twine in zip(CREDENTIALS, ("TWINE_USERNAME", "TWINE_PASSWORD"), strict=True)
    )
    if is_url and urlsplit(target.repository).username:
        username = password = None
    try:
        return TwineSettings(
            username=username,
            password=password,
            non_interactive=True,
            disable_progress_bar=True,
            repository_name=target.repository,
            repository_url=target.repository if is_url else None,
        )
    except (TwineException, OSError) as error:
        raise UsageError(
            f"target {target}: {str(error).splitlines()[0]}",
            remedy="give an http(s) address, dir:PATH, or a name in ~/.pypirc",
        ) from None


def _credentials(twine: TwineSettings) -> tuple[str | None, str | None]:
    try:
        return twine.username, twine.password
    except NonInteractive:
        return None, None


def _simple_url(session: requests.Session, upload: str, explicit: str) -> str:
    """Where the index is read: as told, or the first place below the upload address that answers as one does.

    pypiserver and GitLab read at ``simple/``, devpi at ``+simple/``.
    """
    if explicit:
        return explicit.rstrip("/") + "/"
    base = upload.rstrip("/") + "/"
    for candidate in (f"{base}simple/", f"{base}+simple/"):
        response = get(session, candidate, headers={"Accept": ACCEPT})
        if response.status_code in (401, 403):
            expect_ok(response, candidate)
        if response.ok and not leaves_host(response, candidate):
            return candidate
    raise UsageError(
        f"no index is readable below {twine_utils.sanitize_url(upload)} (tried simple/ and +simple/)",
        remedy="set ROCM_WHEELS_INDEX_URL to the address that pip installs from",
    )
