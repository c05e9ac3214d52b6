"""Static indexes in an S3 bucket: ``s3://bucket/prefix``, by boto3.

Endpoint, region and credentials are found by boto3 itself (AWS_ENDPOINT_URL, AWS_PROFILE, AWS_ACCESS_KEY_ID …).
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rocm_wheels.console import Console
from rocm_wheels.errors import (
    CredentialsRefused,
    RocmWheelsError,
    ServerFull,
    ServerUnreachable,
    UploadRefused,
    UploadTooLarge,
)
from rocm_wheels.publish.dist import CHUNK, Dist
from rocm_wheels.publish.simple import ATTEMPTS

_T = TypeVar("_T")
_JSON_PAGE = "application/vnd.pypi.simple.v1+json"
_ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})
_TAKEN = frozenset({"412", "409", "PreconditionFailed", "ConditionalRequestConflict"})
_CODES: dict[str, type[RocmWheelsError]] = {
    **dict.fromkeys(("403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"), CredentialsRefused),
    **dict.fromkeys(("EntityTooLarge", "413"), UploadTooLarge),
    **dict.fromkeys(("QuotaExceeded", "XMinioStorageFull", "507", "InsufficientStorage"), ServerFull),
    **dict.fromkeys(("500", "502", "503", "504", "SlowDown", "InternalError"), ServerUnreachable),
}
_REMEDIES = {
    CredentialsRefused: "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, of a key that may write",
    UploadTooLarge: "raise the object limit of the storage",
    ServerFull: "free space in the storage, then run the same command again: it continues",
    ServerUnreachable: "check AWS_ENDPOINT_URL and the network, then run the same command again: it continues",
    UploadRefused: "the storage's own words are above; does the bucket exist?",
}


@dataclass(frozen=True)
class S3Client:
    """A bucket and the prefix of the index in it, "" or ending in ``/``."""

    bucket: str
    prefix: str
    api: Any
    console: Console

    @classmethod
    def open(cls, place: str, console: Console) -> S3Client:
        """A client for ``bucket/prefix``; raises :class:`UploadRefused` without boto3."""
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise UploadRefused("boto3 is not installed", remedy="pip install 'rocm-wheels[s3]'") from None
        bucket, _, prefix = place.partition("/")
        retries = Config(retries={"max_attempts": ATTEMPTS, "mode": "standard"}, connect_timeout=10)
        api = _explained(lambda: boto3.session.Session().client("s3", config=retries), f"s3://{place}")
        return cls(bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else "", api, console)

    @property
    def address(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def sizes(self) -> dict[str, int]:
        """Sizes of the objects directly below the prefix."""

        def ask() -> dict[str, int]:
            listed = self.api.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix, Delimiter="/"
            )
            entries = (entry for page in listed for entry in page.get("Contents", ()))
            return {entry["Key"].removeprefix(self.prefix): entry["Size"] for entry in entries}

        return _explained(ask, self.address)

    def read(self, names: list[str]) -> dict[str, bytes]:
        """Small objects."""
        found = {name: _explained(lambda n=name: self._get(n), self.address) for name in names}  # type: ignore[misc]
        return {name: content for name, content in found.items() if content is not None}

    def _get(self, name: str) -> bytes | None:
        from botocore.exceptions import ClientError

        try:
            body: bytes = self.api.get_object(Bucket=self.bucket, Key=self.prefix + name)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in _ABSENT:
                return None
            raise
        return body

    def put(self, files: Mapping[str, bytes], *, replace: bool) -> None:
        """Small objects in the order given. S3 writes only where nothing is when asked to (If-None-Match)."""
        condition = {} if replace else {"IfNoneMatch": "*"}
        for name, content in files.items():
            _explained(lambda n=name, c=content: self._put(n, c, condition), self.address)  # type: ignore[misc]

    def _put(self, name: str, content: bytes, condition: Mapping[str, str]) -> None:
        from botocore.exceptions import ClientError

        key, kind = self.prefix + name, _content_type(name)
        try:
            self.api.put_object(Bucket=self.bucket, Key=key, Body=content, ContentType=kind, **condition)
        except ClientError as error:
            if not condition or error.response["Error"]["Code"] not in _TAKEN:
                raise

    def upload(self, dist: Dist) -> None:
        """The wheel, in parts; an object appears when its last part is there."""
        with self.console.progress(f"upload {dist.filename}", dist.size) as advance:
            kind = {"ContentType": "application/octet-stream"}
            _explained(
                lambda: self.api.upload_file(
                    str(dist.path), self.bucket, self.prefix + dist.filename, ExtraArgs=kind, Callback=advance
                ),
                self.address,
            )

    def same(self, dist: Dist, sha256: str) -> bool:
        """Downloaded in pieces and hashed."""
        digest = hashlib.sha256()

        def ask() -> None:
            body = self.api.get_object(Bucket=self.bucket, Key=self.prefix + dist.filename)["Body"]
            for piece in body.iter_chunks(CHUNK):
                digest.update(piece)

        _explained(ask, self.address)
        return digest.hexdigest() == sha256


def _content_type(name: str) -> str:
    if name.endswith("index.json"):
        return _JSON_PAGE
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _explained(ask: Callable[[], _T], address: str) -> _T:
    """Run ``ask`` with boto's failures as errors of this project; no message of boto holds a secret key."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        return ask()
    except (ClientError, BotoCoreError, Boto3Error, OSError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        kind = _CODES.get(code, UploadRefused if code else ServerUnreachable)
        if isinstance(error, NoCredentialsError):
            kind = CredentialsRefused
        raise kind(f"{address}: {' '.join(str(error).split())[:400]}", remedy=_REMEDIES[kind]) from None
