"""Settings and where each value came from: default < pyproject ``[tool.rocm-wheels]`` < environment < command line.

Environment names are ``ROCM_WHEELS_`` and the setting in capitals.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from rocm_wheels.errors import SettingError, nearest

PREFIX = "ROCM_WHEELS_"
# Credentials of the index and of a shared compiler cache are no settings, because settings are printed.
CREDENTIALS = (f"{PREFIX}INDEX_USERNAME", f"{PREFIX}INDEX_PASSWORD")
CACHE_CREDENTIALS = (f"{PREFIX}COMPILER_CACHE_USERNAME", f"{PREFIX}COMPILER_CACHE_PASSWORD")
PROJECT_ROOT = Path(__file__).resolve().parent.parent


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


def _default_ca_bundle() -> str:
    """The CA bundle that this machine's own tools were told to use, or ""."""
    for name in ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        value = os.environ.get(name, "")
        if value and Path(value).is_file():
            return value
    return ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings. Empty strings mean "decide for me"."""

    engine: str = _setting("", "container engine: docker, podman or none; empty takes whichever works")
    release: str = _setting("minitorch", "release to build when none is named")
    image: str = _setting("debian-trixie", "builder image when none is named")
    arch: str = _setting("", "GPU targets, separated by ';'; empty takes the release's default")
    jobs: int = _setting(0, "compile jobs; 0 derives them from cores and memory")
    cache_dir: str = _setting(platformdirs.user_cache_dir("rocm-wheels"), "sources, build trees, compiler cache")
    dist_dir: str = _setting("dist", "where finished wheels go")
    ca_bundle: str = _setting(_default_ca_bundle(), "CA certificates that containers get (PIP_CERT and the like)")
    base_mirror: str = _setting("", "apt mirror for base images when no registry answers; empty: mmdebstrap's own")
    git_mirrors: str = _setting("", "rewrites 'from=to' separated by ';' applied to git addresses (offline mirrors)")
    source_mirror: str = _setting("", "directory or address that holds source archives, tried before the original")
    lock_timeout: int = _setting(0, "seconds to wait for another run on the same tree; 0 waits without end")
    compiler_cache: str = _setting("", "address of a shared compiler cache (redis:// or http://), beside the local one")
    memory: int = _setting(512, "MiB that repair and verify may use for buffers")
    index: str = _setting("", "index that publish uploads to: address, .pypirc name or directory")
    index_url: str = _setting("", "simple page of that index when it is not below the upload address")
    public_names: str = _setting("", "file with the names of a public index, a line each; publish warns of shared ones")

    @property
    def cache(self) -> Path:
        """``cache_dir`` as an absolute path."""
        return Path(self.cache_dir).expanduser().resolve()


@dataclass(frozen=True)
class Setting:
    """One value with its origin, as ``invoke config`` prints it."""

    name: str
    value: object
    origin: str
    help: str


def load(overrides: Mapping[str, object] | None = None, *, root: Path = PROJECT_ROOT) -> Settings:
    """Settings for this run; ``overrides`` are command-line values, ``None`` among them meaning "not given".

    Raises :class:`SettingError` for an unknown name or a value of the wrong form.
    """
    values: dict[str, Any] = {s.name: s.value for s in explain(overrides, root=root)}
    return Settings(**values)


def explain(overrides: Mapping[str, object] | None = None, *, root: Path = PROJECT_ROOT) -> tuple[Setting, ...]:
    """Every setting with its value and the place that value came from."""
    fields = {f.name: f for f in dataclasses.fields(Settings)}
    found: dict[str, tuple[object, str]] = {name: (f.default, "default") for name, f in fields.items()}
    layers = (
        (_from_pyproject(root / "pyproject.toml"), "pyproject.toml"),
        (_from_environment(os.environ), "environment"),
        ({k: v for k, v in (overrides or {}).items() if v is not None}, "command line"),
    )
    for values, origin in layers:
        for name, value in values.items():
            if name not in fields:
                raise SettingError(f"unknown setting {name!r} in {origin}", remedy=nearest(name, fields))
            found[name] = (_convert(name, value, type(fields[name].default), origin), origin)
    return tuple(Setting(name, value, origin, fields[name].metadata["help"]) for name, (value, origin) in found.items())


def _from_pyproject(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path} is not valid TOML: {error}") from error
    own: dict[str, object] = table.get("tool", {}).get("rocm-wheels", {})
    return {name.replace("-", "_"): value for name, value in own.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    secret = {*CREDENTIALS, *CACHE_CREDENTIALS}
    own = {name: value for name, value in environ.items() if name.startswith(PREFIX) and name not in secret}
    return {name.removeprefix(PREFIX).lower(): value for name, value in own.items()}


def _convert(name: str, value: object, kind: type, origin: str) -> object:
    if kind is int:
        try:
            number = int(str(value))
        except ValueError:
            number = -1
        if number < 0:
            raise SettingError(f"{name} from {origin} is {value!r}, not a whole number ≥ 0")
        return number
    if not isinstance(value, str):
        raise SettingError(f"{name} from {origin} is {value!r}, not a string")
    return value
