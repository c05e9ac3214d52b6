"""Addresses of sources: mirrors in their place, submodules beside their parent, credentials kept out of sight."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit, urlunsplit

from rocm_wheels.config import Settings
from rocm_wheels.errors import SettingError, SubmoduleBroken


def rewrite(url: str, mirrors: str) -> str:
    """``url`` after the longest matching ``from=to`` of the setting ``git_mirrors``."""
    best = ("", "")
    for rule in filter(None, mirrors.split(";")):
        start, sign, replacement = rule.partition("=")
        if not sign:
            raise SettingError(f"git_mirrors has {rule!r}; each rule is FROM=TO")
        if url.startswith(start) and len(start) > len(best[0]):
            best = (start, replacement)
    return best[1] + url[len(best[0]) :] if best[0] else url


def split_credentials(url: str) -> tuple[str, str, str]:
    """An http(s) address without its credentials, the user and the password ("" for none)."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return url, "", ""
    userinfo, _, host = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    return urlunsplit(parts._replace(netloc=host)), unquote(user), unquote(password)


def resolve(parent: str, address: str) -> str:
    """A submodule's address; ``../x`` is relative to the superproject's."""
    if not address.startswith(("./", "../")):
        return address
    scheme, sign, rest = parent.rpartition("://")  # urllib's urljoin knows no ssh://
    return f"{scheme}{sign}{os.path.normpath(f'{rest}/{address}')}"


def refuse_unsafe(address: str, parent: str, settings: Settings) -> None:
    """Refuse addresses in a source that git would take for an option, a command or a place on this machine.

    A path or ``file:`` is trusted when the parent is one too or the user's ``git_mirrors`` lead to it. Raises
    :class:`SubmoduleBroken`.
    """
    trusted = _is_local(parent) or rewrite(address, settings.git_mirrors) != address
    if re.match(r"-|\w+::", address) or (_is_local(address) and not trusted):
        raise SubmoduleBroken(
            f"{parent} asks for a submodule from {address!r}, which is no address of another machine",
            remedy="if it is right, set git_mirrors='FROM=TO' for it",
        )


def _is_local(address: str) -> bool:
    scheme, sign, _ = address.partition("://")
    return scheme == "file" if sign else ":" not in address.partition("/")[0]
