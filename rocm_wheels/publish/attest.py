"""Attestations with a key of the team: who published which bytes, and from what.

An attestation is an in-toto statement (subject: file name and SHA-256; predicate: the manifest) in a DSSE envelope,
signed with Ed25519 by securesystemslib, the library under TUF and in-toto. PEP 740 asks for a certificate and a
transparency log, which need a network and an identity provider; an offline key has neither, so these files are not
called PEP 740 attestations and no index page names them as ``provenance``. Statement and envelope are those of PEP 740.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]  # its __all__ lacks them

from rocm_wheels.errors import AttestationInvalid, UsageError
from rocm_wheels.publish.dist import sha256_of

SUFFIX = ".dsse.json"
PASSWORD = "ROCM_WHEELS_KEY_PASSWORD"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "urn:rocm-wheels:manifest:1"


def make_key(path: Path) -> Path:
    """Write a new private key to ``path``, readable by its owner only, and the public key to ``path`` + ``.pub``.

    The private key is encrypted with ``ROCM_WHEELS_KEY_PASSWORD`` when that is set. Returns the public key's path;
    raises :class:`UsageError` when there is a key already.
    """
    signer = CryptoSigner.generate_ed25519()
    password = os.environ.get(PASSWORD, "").encode()
    private = load_pem_private_key(signer.private_bytes, None)
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    public = path.with_name(f"{path.name}.pub")
    try:
        with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    except FileExistsError:
        raise UsageError(f"{path} exists and is not overwritten", remedy="name a new file") from None
    public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return public


def attest(manifest: Mapping[str, object], key: Path) -> bytes:
    """The signed envelope for a manifest, which names the file and its SHA-256; the same input gives the same bytes.

    Raises :class:`UsageError` when ``key`` is no private key or its password is wrong.
    """
    statement = {
        "_type": _STATEMENT,
        "subject": [{"name": manifest["file"], "digest": {"sha256": manifest["sha256"]}}],
        "predicateType": _PREDICATE,
        "predicate": manifest,
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    envelope = Envelope(payload, _PAYLOAD, {})
    envelope.sign(_signer(key))
    return (json.dumps(envelope.to_dict(), indent=1, sort_keys=True) + "\n").encode()


def check(wheel: Path, public_key: Path) -> dict[str, Any]:
    """The manifest that was signed for exactly these bytes.

    Looks for the attestation beside the wheel. Raises :class:`AttestationInvalid` naming what does not fit, and
    :class:`UsageError` for a key that is none.
    """
    file = attestation_path(wheel)
    remedy = "do not install it; get wheel and attestation again from the team's index"
    try:
        envelope = Envelope.from_dict(json.loads(file.read_bytes()))
        envelope.verify([_public(public_key)], 1)
        statement = json.loads(envelope.payload)
        subject = {entry["name"]: entry["digest"]["sha256"] for entry in statement["subject"]}
    except FileNotFoundError:
        raise AttestationInvalid(
            f"{wheel.name} has no attestation ({file.name} is not beside it)", remedy=remedy
        ) from None
    except VerificationError:
        raise AttestationInvalid(f"{file.name} is not signed by {public_key}", remedy=remedy) from None
    except (ValueError, KeyError, TypeError) as error:
        raise AttestationInvalid(f"{file.name} is no attestation: {error}", remedy=remedy) from None
    if envelope.payload_type != _PAYLOAD or statement.get("predicateType") != _PREDICATE:
        raise AttestationInvalid(
            f"{file.name} is a statement about something else than a published wheel", remedy=remedy
        )
    if subject != {wheel.name: (found := sha256_of(wheel))}:
        raise AttestationInvalid(f"{file.name} is for {subject}, {wheel.name} has sha256 {found}", remedy=remedy)
    predicate: dict[str, Any] = statement["predicate"]
    return predicate


def attestation_path(wheel: Path) -> Path:
    """Where the attestation of a wheel lies: beside it."""
    return wheel.with_name(wheel.name + SUFFIX)


def _signer(key: Path) -> CryptoSigner:
    try:
        private = load_pem_private_key(key.read_bytes(), os.environ.get(PASSWORD, "").encode() or None)
        return CryptoSigner(private)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"{key} cannot be used to sign: {error}", remedy=f"make one with `invoke keygen`; {PASSWORD} unlocks it"
        ) from None


def _public(path: Path) -> SSlibKey:
    try:
        return SSlibKey.from_crypto(load_pem_public_key(path.read_bytes()))
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"{path} is no public key: {error}", remedy="the file that `invoke keygen` wrote as .pub"
        ) from None
