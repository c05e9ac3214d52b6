"""Credentials in addresses: whatever prints goes through one place, and none of it shows them."""

from __future__ import annotations

import json

import pytest

from rocm_wheels.console import Console, exit_codes, print_json, print_table
from rocm_wheels.errors import RocmWheelsError, SourceUnreachable, redact

ADDRESSES = [
    "https://user:hunter2@host/x",
    "https://hunter2@host/x",
    "http://user:hun@hunter2@host:8080/x",
    "ssh://user:hunter2@host/x",
    "https://host/x?a=1&token=hunter2&b=2",
    "https://host/x?X-Amz-Signature=hunter2",
    "https://host/?api_key=hunter2",
    "https://a.invalid/=https://user:hunter2@host/;https://b.invalid/=/srv/",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_output_shows_credentials(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.line(address)
    console.warn(address)
    with console.step(f"fetch {address}"), console.progress(f"fetch {address}", 2) as advance:
        advance(1)
    print_table(("address",), [(address,)], title=address)
    print_json({"address": [address]})
    for as_json in (False, True):
        with pytest.raises(SystemExit), exit_codes(as_json=as_json):
            raise SourceUnreachable(f"{address} is gone", remedy=f"try {address}")
    error = RocmWheelsError(f"{address} is gone", remedy=address)
    shown = f"{capsys.readouterr()} {error} {error!r} {error.args} {json.dumps(error.as_dict())}"
    assert "hunter2" not in shown
    assert "host" in shown


@pytest.mark.parametrize(
    "text", ["git@host:o/x", "ssh://git@host/o", "https://host:8080/a@b", "see http://host/ or mail a@b", "/a?b=c"]
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redact(text) == text


def test_no_output_steers_a_terminal_or_fails_on_what_is_no_character(capsys: pytest.CaptureFixture[str]) -> None:
    name = "lib\x1b[31m\udcff[/red].so"
    console = Console()
    console.line(name)
    console.warn(name)
    print_table((name,), [(name,)], title=name)
    with pytest.raises(SystemExit), exit_codes():
        raise SourceUnreachable(name, remedy=name)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count(r"lib\x1b[31m\udcff[/red].so") == 7
    assert "\x1b" not in shown.out + shown.err
