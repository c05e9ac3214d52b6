"""What rsync's words mean, said by a script in its place: faults that a real daemon shows only now and then."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocm_wheels.console import Console
from rocm_wheels.errors import UploadRefused
from rocm_wheels.publish import rsync
from rocm_wheels.publish.rsync import RsyncClient


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RsyncClient:
    """A client whose rsync says what lies in ``said`` and ends with 11, the first time."""
    script = tmp_path / "rsync"
    script.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/runs\n[ $(wc -l < {tmp_path}/runs) -gt 1 ] && exit 0\n"
        f"cat {tmp_path}/said >&2\nexit 11\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(rsync, "back_off", lambda attempt: None)
    return RsyncClient("rsync://localhost/wheels/team", Console(quiet=True))


def test_a_directory_that_another_publisher_made_just_now_is_no_failure(client: RsyncClient, tmp_path: Path) -> None:
    (tmp_path / "said").write_text('rsync: [Receiver] mkdir "team" (in wheels) failed: File exists (17)\n')
    client.put({"a.json": b"{}"}, replace=True)
    assert (tmp_path / "runs").read_text().count("x") == 2


def test_another_failure_to_write_is_said_at_once(client: RsyncClient, tmp_path: Path) -> None:
    (tmp_path / "said").write_text('rsync: [Receiver] mkdir "team" (in wheels) failed: Permission denied (13)\n')
    with pytest.raises(UploadRefused, match="Permission denied"):
        client.put({"a.json": b"{}"}, replace=True)
    assert (tmp_path / "runs").read_text().count("x") == 1
