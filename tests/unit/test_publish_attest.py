"""What is published with a wheel: its manifest, signed by a key that needs no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import AttestationInvalid, UsageError
from rocm_wheels.publish import publish
from rocm_wheels.publish.attest import PASSWORD, attestation_path, check, make_key
from rocm_wheels.publish.manifest import manifest_path
from tests.publish_wheels import make_wheel, sha256

CONSOLE = Console(quiet=True)
BUILD = {
    "release": "minitorch-0.1.0",
    "archs": ["gfx1100", "gfx1030"],
    "image": "localhost/rocm-wheels/debian-trixie:04ef",
    "rocm": "5.7",
    "source": {"identity": "commit 1eba9b3a", "patches": [{"patch": "base/0001-a.patch", "sha256": "c865"}]},
    "tree": "/home/me/trees/secret-project",
}


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "team.key")
    return tmp_path / "team.key"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = make_wheel(tmp_path / "dist", requires=["numpy>=2"])
    manifest_path(path).write_text(json.dumps(BUILD))
    return path


def bring(wheel: Path, tmp_path: Path, key: Path | None = None, waived: Sequence[str] = ()) -> Path:
    target = tmp_path / "static"
    judge = {wheel.name: waived}
    publish([wheel], f"dir:{target}", settings=Settings(), console=CONSOLE, key=key, verify=lambda _: judge)
    return target / wheel.name


def test_the_manifest_says_where_the_wheel_came_from(wheel: Path, tmp_path: Path) -> None:
    published = bring(wheel, tmp_path, waived=["exec-stack"])
    found = json.loads(manifest_path(published).read_text())
    assert (found["sha256"], found["size"]) == (sha256(wheel), wheel.stat().st_size)
    assert found["build"]["source"] == BUILD["source"] and found["build"]["image"] == BUILD["image"]
    assert found["archs"] == ["gfx1030", "gfx1100"]
    assert found["checks"] == {"verified": True, "allowed": ["exec-stack"]}
    assert set(found["tools"]) >= {"auditwheel", "patchelf"}
    assert "secret-project" not in manifest_path(published).read_text()


def test_the_page_for_people_links_manifest_and_signature(wheel: Path, key: Path, tmp_path: Path) -> None:
    bring(wheel, tmp_path, key)
    page = (tmp_path / "static" / "projects" / "minitorch.html").read_text()
    for path in (manifest_path(wheel), attestation_path(wheel)):
        assert f'href="../{path.name.replace("+", "%2B")}"' in page
        assert (tmp_path / "static" / path.name).is_file()


def test_no_page_calls_an_offline_signature_provenance(wheel: Path, key: Path, tmp_path: Path) -> None:
    bring(wheel, tmp_path, key)
    assert not [p for p in (tmp_path / "static" / "simple").rglob("*.*") if "provenance" in p.read_text()]


def test_a_signed_wheel_is_the_one_that_was_signed(wheel: Path, key: Path, tmp_path: Path) -> None:
    published = bring(wheel, tmp_path, key)
    assert check(published, key.with_name("team.key.pub"))["sha256"] == sha256(wheel)


def test_another_publication_keeps_what_was_published(wheel: Path, key: Path, tmp_path: Path) -> None:
    published = bring(wheel, tmp_path, key)
    before = attestation_path(published).read_bytes()
    manifest_path(wheel).unlink()
    assert attestation_path(bring(wheel, tmp_path, key)).read_bytes() == before


def test_other_bytes_another_name_and_another_key_are_refused(wheel: Path, key: Path, tmp_path: Path) -> None:
    published = bring(wheel, tmp_path, key)
    public = key.with_name("team.key.pub")
    stranger = make_key(tmp_path / "stranger.key")
    with pytest.raises(AttestationInvalid, match=r"is not signed by .*stranger.key.pub"):
        check(published, stranger)
    envelope = json.loads(attestation_path(published).read_text())
    renamed = published.rename(published.with_name("minitorch-9-py3-none-any.whl"))
    attestation_path(renamed).write_text(json.dumps(envelope))
    with pytest.raises(AttestationInvalid, match="is for .*0.1.rocm5.7"):
        check(renamed, public)
    renamed.rename(published)
    published.write_bytes(published.read_bytes() + b"x")
    with pytest.raises(AttestationInvalid, match="has sha256"):
        check(published, public)


@pytest.mark.parametrize("damage", ["cut", "no json", "other payload", "absent"])
def test_a_damaged_attestation_is_named(damage: str, wheel: Path, key: Path, tmp_path: Path) -> None:
    published = bring(wheel, tmp_path, key)
    path = attestation_path(published)
    envelope = json.loads(path.read_text())
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:100])
    elif damage == "no json":
        path.write_text("[1]")
    elif damage == "other payload":
        path.write_text(json.dumps({**envelope, "payload": "e30="}))
    else:
        path.unlink()
    with pytest.raises(AttestationInvalid):
        check(published, key.with_name("team.key.pub"))


def test_a_key_is_private_and_never_overwritten(key: Path, tmp_path: Path) -> None:
    assert key.stat().st_mode & 0o077 == 0
    assert key.with_name("team.key.pub").read_text().startswith("-----BEGIN PUBLIC KEY-----")
    with pytest.raises(UsageError, match="is not overwritten"):
        make_key(key)


def test_a_key_with_a_password_needs_it(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD, "hunter2-very-secret")
    make_key(tmp_path / "locked.key")
    assert "ENCRYPTED" in (tmp_path / "locked.key").read_text()
    bring(wheel, tmp_path, tmp_path / "locked.key")
    monkeypatch.setenv(PASSWORD, "wrong")
    with pytest.raises(UsageError, match="cannot be used to sign") as caught:
        bring(wheel, tmp_path, tmp_path / "locked.key")
    assert "hunter2" not in str(caught.value) and "wrong" not in str(caught.value).replace("Incorrect", "")
