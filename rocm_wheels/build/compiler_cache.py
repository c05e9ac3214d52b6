"""ccache: the cache that a team shares, and what was hit in a stage, by language.

Hits are read from the log that ccache writes per call (CCACHE_STATSLOG); its own statistics know no languages.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, urlsplit, urlunsplit

from rocm_wheels.config import CACHE_CREDENTIALS
from rocm_wheels.errors import SettingError

# What ccache of Debian 13 speaks (`ccache --version`); it has no TLS.
_SCHEMES = ("http", "redis")

# ccache's own counters, one line each below the name of the source file (ccache manual, "stats_log").
_HITS = {"direct_cache_hit", "preprocessed_cache_hit"}
_MISS = "cache_miss"
# Calls that compile nothing: linking, and FindHIP's search for dependencies (-M).
_NO_COMPILE = {"called_for_link", "called_for_preprocessing", "no_input_file", "unsupported_compiler_option"}
_LANGUAGES = {".c": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++", ".hip": "HIP", ".cu": "HIP", ".S": "assembler"}


@dataclass(frozen=True)
class Calls:
    """Compiles of one language: answered by the cache, put into it, and those that it cannot keep."""

    hits: int = 0
    misses: int = 0
    uncached: int = 0

    @property
    def rate(self) -> float:
        """Part of the compiles that the cache answered, 1.0 when there was none."""
        total = self.hits + self.misses + self.uncached
        return self.hits / total if total else 1.0

    def __add__(self, other: Calls) -> Calls:
        return Calls(self.hits + other.hits, self.misses + other.misses, self.uncached + other.uncached)

    def __str__(self) -> str:
        text = f"{self.hits} of {self.hits + self.misses + self.uncached} compiles hit ({self.rate:.0%})"
        return text + (f", {self.uncached} cannot be kept" if self.uncached else "")


def read_calls(log: Path) -> dict[str, Calls]:
    """The compiles in ``log`` by language, sorted; empty when ccache was never called."""
    if not log.is_file():
        return {}
    found: dict[str, Calls] = {}
    for block in log.read_text("utf-8", "replace").split("# ")[1:]:
        name, *counters = block.splitlines()
        language = _LANGUAGES.get(PurePosixPath(name).suffix, "other")
        if counted := _count(set(counters)):
            found[language] = found.get(language, Calls()) + counted
    return dict(sorted(found.items()))


def _count(counters: set[str]) -> Calls | None:
    """One call by what ccache counted for it; None when it compiled nothing."""
    if counters & _HITS:
        return Calls(hits=1)
    if _MISS in counters:
        return Calls(misses=1)
    return None if counters & _NO_COMPILE else Calls(uncached=1)


def remote_storage(address: str, environ: Mapping[str, str] = os.environ) -> str:
    """``CCACHE_REMOTE_STORAGE`` for the setting ``compiler_cache``, with the credentials of ``environ``; "" for "".

    Raises :class:`SettingError` for an address that ccache cannot use or that holds a password itself.
    """
    if not address:
        return ""
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise SettingError(
            f"compiler_cache is {address!r}", remedy="ccache takes redis://host:port or http://host/path"
        )
    if "@" in parts.netloc:
        raise SettingError("compiler_cache holds credentials", remedy=f"set {' and '.join(CACHE_CREDENTIALS)} instead")
    user, password = (quote(environ.get(name, ""), safe="") for name in CACHE_CREDENTIALS)
    login = f"{user}:{password}@" if password else ""
    return urlunsplit(parts._replace(netloc=login + parts.netloc))


def is_on_this_machine(remote: str) -> bool:
    """Whether the server of ``remote`` listens on the loopback, which only a container on the host's network sees."""
    host = urlsplit(remote).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
