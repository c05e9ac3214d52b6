"""Reading an index: the project pages of PEP 503 (HTML) and PEP 691 (JSON), and the files behind them."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import requests
from packaging.utils import NormalizedName
from twine.utils import sanitize_url

from rocm_wheels.errors import CredentialsRefused, ReadBackMismatch, ServerUnreachable, UploadRefused

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
TIMEOUT = (10, 120)
ATTEMPTS = 5


@dataclass(frozen=True)
class IndexedFile:
    """One file of a project page: its address without fragment and, if the page tells, its SHA-256."""

    filename: str
    url: str
    sha256: str | None
    requires_python: str = ""
    yanked: bool = False


@dataclass(frozen=True)
class Index:
    """The reading side of an index: the address of its simple API and the session that may read it."""

    url: str
    session: requests.Session

    def files(self, project: NormalizedName) -> dict[str, IndexedFile]:
        """The files of a project by :func:`file_key`; empty when the index does not know it.

        A redirect to another host is an index that passes the question on to a public one (pypiserver does unless
        told otherwise); that answer is not this index's, so it counts as "not known".
        Raises :class:`ServerUnreachable`, :class:`CredentialsRefused` or :class:`UploadRefused`.
        """
        address = f"{self.url}{project}/"
        response = get(self.session, address, headers={"Accept": ACCEPT, "Cache-Control": "no-cache"})
        if response.status_code == 404 or leaves_host(response, address):
            return {}
        expect_ok(response, address)
        try:
            return {file_key(f.filename): f for f in parse_page(response)}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UploadRefused(
                f"{sanitize_url(address)} is no page of an index",
                remedy="set ROCM_WHEELS_INDEX_URL to the one pip uses",
            ) from None

    def forwards_to(self, project: NormalizedName) -> str:
        """The host that this index sends a reader to who asks for ``project``, "" when it answers itself.

        pypiserver does so for names that it does not know, unless told ``--disable-fallback``.
        """
        address = f"{self.url}{project}/"
        response = get(self.session, address, headers={"Accept": ACCEPT})
        if not leaves_host(response, address):
            return ""
        return host(urljoin(response.url, response.headers["Location"]))

    def sha256(self, file: IndexedFile, advance: Callable[[int], None] = lambda _: None) -> str:
        """Download the file in pieces, keep nothing, return the SHA-256 of what came.

        Raises :class:`ReadBackMismatch` when the page names a file that is not there.
        """
        failure: Exception | None = None
        for attempt in range(ATTEMPTS):
            back_off(attempt)
            digest = hashlib.sha256()
            try:
                with self._session_for(file.url).get(file.url, stream=True, timeout=TIMEOUT) as response:
                    if response.status_code == 404:
                        raise ReadBackMismatch(
                            f"the index names {file.filename} but has no file at {sanitize_url(file.url)}",
                            remedy="remove the stale entry on the server, then publish again",
                        )
                    expect_ok(response, file.url)
                    for piece in response.iter_content(1 << 20):
                        digest.update(piece)
                        advance(len(piece))
                return digest.hexdigest()
            except requests.RequestException as error:
                failure = error
        raise ServerUnreachable(f"reading back {file.filename} lost its connection {ATTEMPTS} times: {cause(failure)}")

    def size(self, file: IndexedFile) -> int | None:
        """The bytes that the server would hand out, or None when it does not tell."""
        with self._session_for(file.url).get(file.url, stream=True, timeout=TIMEOUT) as response:
            text = response.headers.get("Content-Length", "")
        return int(text) if response.ok and text.isdigit() else None

    def _session_for(self, url: str) -> requests.Session:
        """The index's session for its own host; a bare one elsewhere, so that credentials stay at home."""
        if host(url) == host(self.url):
            return self.session
        bare = requests.Session()
        bare.verify = self.session.verify
        return bare


def file_key(filename: str) -> str:
    """The name under which files are compared: some servers store ``+`` of a local version as ``_``."""
    return filename.replace("+", "_").lower()


def get(session: requests.Session, url: str, *, headers: dict[str, str]) -> requests.Response:
    """GET a page without leaving for another host; retries a lost connection with back-off."""
    failure: Exception | None = None
    for attempt in range(ATTEMPTS):
        back_off(attempt)
        try:
            response = session.get(url, headers=headers, timeout=TIMEOUT, allow_redirects=False)
            for _ in range(5):
                if not response.is_redirect or leaves_host(response, url):
                    break
                address = urljoin(response.url, response.headers["Location"])
                response = session.get(address, headers=headers, timeout=TIMEOUT, allow_redirects=False)
            return response
        except requests.RequestException as error:
            failure = error
    raise ServerUnreachable(
        f"no answer from {sanitize_url(url)} in {ATTEMPTS} attempts: {cause(failure)}",
        remedy="check that the index runs and that this machine reaches it, then run the same command again",
    )


def leaves_host(response: requests.Response, asked: str) -> bool:
    """Whether the response sends the reader to another server than the one that was asked."""
    if not response.is_redirect:
        return False
    return host(urljoin(response.url, response.headers["Location"])) != host(asked)


def host(url: str) -> str:
    """Host and port of an address, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def expect_ok(response: requests.Response, address: str) -> None:
    """Turn a refusal to read into its error."""
    if response.status_code in (401, 403):
        raise CredentialsRefused(
            f"{sanitize_url(address)} answers {response.status_code}: the index wants other credentials for reading",
            remedy="set TWINE_USERNAME and TWINE_PASSWORD, or store them with keyring or in ~/.pypirc",
        )
    if not response.ok:
        raise UploadRefused(f"{sanitize_url(address)} answers {response.status_code} {response.reason}")


def parse_page(response: requests.Response) -> tuple[IndexedFile, ...]:
    """The files that a project page lists, JSON or HTML as its content type says."""
    if "json" in response.headers.get("Content-Type", ""):
        return tuple(
            IndexedFile(
                entry["filename"],
                urljoin(response.url, entry["url"]),
                entry.get("hashes", {}).get("sha256"),
                entry.get("requires-python") or "",
                bool(entry.get("yanked")),
            )
            for entry in response.json()["files"]
        )
    parser = _Anchors(response.url)
    parser.feed(response.text)
    parser.close()
    return tuple(parser.files)


class _Anchors(HTMLParser):
    """Collects the anchors of a PEP 503 page."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.files: list[IndexedFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag == "base" and href:
            self.base = urljoin(self.base, href)
        if tag != "a" or not href:
            return
        url, fragment = urldefrag(urljoin(self.base, href))
        digest = re.search(r"(?:^|&)sha256=([0-9a-f]{64})", fragment)
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        python = values.get("data-requires-python") or ""
        self.files.append(IndexedFile(name, url, digest and digest[1], python, "data-yanked" in values))


def back_off(attempt: int, *, first: float = 0.5) -> None:
    """Sleep before attempt number ``attempt``: nothing, then 0.5 s, 1 s, 2 s …"""
    if attempt:
        time.sleep(first * 2 ** (attempt - 1))


def cause(error: BaseException | None) -> str:
    """The innermost reason of a failed request in a few words, without address or credentials."""
    while error is not None and (inner := error.__cause__ or error.__context__ or getattr(error, "reason", None)):
        if not isinstance(inner, BaseException):
            break
        error = inner
    text = str(error) if isinstance(error, OSError) and error.strerror else type(error).__name__
    return re.sub(r"//[^/@\s]*@", "//", text)
