"""Ten minutes of mutated archives, ELF files and offload bundles: each is read or refused, none crashes or hangs.

``ROCM_WHEELS_FUZZ_SECONDS`` sets the time of each reader; three readers share the ten minutes. atheris guides by
coverage where it is installed (dependency group ``fuzz``); without it hypothesis mutates at random.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.slow.fuzz_targets import TARGETS, mutated, seed

SECONDS = int(os.environ.get("ROCM_WHEELS_FUZZ_SECONDS", "200"))
_TOO_LONG = 20.0  # for one small input


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_mutated_input_is_read_or_refused(name: str, tmp_path: Path) -> None:
    start, number = seed(name, tmp_path), 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        data = mutated(start, random.Random(number))
        began = time.monotonic()
        try:
            TARGETS[name](data)
        except BaseException:
            (tmp_path / "failing").write_bytes(data)
            raise
        assert time.monotonic() - began < _TOO_LONG, f"mutation {number} of {name}"
        number += 1
    assert number > SECONDS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_coverage_guided_input_is_read_or_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip(
        "atheris", reason="not installed: pip install --group fuzz (it has wheels for CPython 3.11 to 3.13)"
    )
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "seed").write_bytes(seed(name, tmp_path))
    command = [sys.executable, "-m", "tests.slow.fuzz_targets", name, str(corpus)]
    options = [f"-max_total_time={SECONDS}", "-timeout=20", "-max_len=65536", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
