"""Debian source packages: fetched by apt from the machine's own mirror, verified by the pinned .dsc.

The original archives are unpacked with their components in place. Debian's patches are not applied: ours are. What
Debian keeps of third parties beside its packaging is laid where the source expects it (``parts``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from filelock import FileLock

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import PinMismatch, SourceToolMissing, SourceUnreachable
from rocm_wheels.release import Source
from rocm_wheels.source.fetch import check_pin, unpack

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_COMPONENT = re.compile(r"\.orig-([A-Za-z0-9-]+)\.tar\.")


def lay(source: Source, into: Path, *, settings: Settings, console: Console) -> str:
    """Unpack the original source of ``source`` into ``into``; returns its identity."""
    folder = settings.cache / "debian" / f"{source.package}_{source.version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        dsc = folder / f"{source.package}_{source.version.partition(':')[2] or source.version}.dsc"
        if not folder.is_dir():
            beside = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir()
            _fetch(source, beside, settings, console)
            _verified_files(beside / dsc.name, source)
            beside.rename(folder)
        files = _verified_files(dsc, source)
        originals = [f for f in files if ".orig" in f.name and not f.name.endswith(".asc")]
        for file in sorted(originals, key=lambda f: (bool(_COMPONENT.search(f.name)), f.name)):
            component = _COMPONENT.search(file.name)
            with console.step(f"unpack {file.name}"):
                unpack(file, into / component[1] if component else into)
        if source.parts:
            _lay_parts(source, next(f for f in files if ".debian.tar." in f.name), into)
    return f"{source.package} {source.version} (.dsc sha256 {source.sha256})"


def _lay_parts(source: Source, packaging: Path, into: Path) -> None:
    """Copy the ``parts`` of ``source`` from its ``packaging`` archive to their places below ``into``."""
    with tempfile.TemporaryDirectory(prefix="rocm-wheels-debian-") as scratch:
        unpack(packaging, Path(scratch))
        for place, part in source.parts:
            found = Path(scratch) / part
            if not found.is_dir():
                raise PinMismatch(f"{packaging.name} has no directory {part}, which {source.package} needs at {place}")
            shutil.copytree(found, into / place, symlinks=True)


def _verified_files(dsc: Path, source: Source) -> list[Path]:
    """The files that the .dsc lists, each compared with its sha256 there, the .dsc itself with the pin.

    Raises :class:`PinMismatch` for other content and :class:`SourceUnreachable` for a file that is missing.
    """
    _present(dsc, source)
    check_pin(dsc, source.sha256)
    block = re.search(r"^Checksums-Sha256:\s*\n((?: .+\n)+)", dsc.read_text("utf-8"), re.MULTILINE)
    rows = [line.split() for line in block[1].splitlines()] if block else []
    for digest, _, name in rows:
        _present(dsc.parent / name, source)
        check_pin(dsc.parent / name, digest)
    return [dsc.parent / name for _, _, name in rows]


def _present(file: Path, source: Source) -> None:
    if not file.is_file():
        raise SourceUnreachable(
            f"{file.name} of {source.package} {source.version} is not in {file.parent}",
            remedy=f"put it into source_mirror if that is set, else remove {file.parent} and run again",
        )


def _fetch(source: Source, folder: Path, settings: Settings, console: Console) -> None:
    """Download the package's files into ``folder`` with apt state of our own; the machine's is not touched."""
    if settings.source_mirror and "://" not in settings.source_mirror:
        found = list(Path(settings.source_mirror).glob(f"{source.package}_*"))
        if any(f.suffix == ".dsc" for f in found):
            for file in found:
                shutil.copy2(file, folder / file.name)
            return
    if not shutil.which("apt-get"):
        raise SourceToolMissing(
            "apt-get is needed to fetch a Debian source package",
            remedy=f"put the files of {source.package} {source.version} into a directory and set source_mirror to it",
        )
    state = settings.cache / "apt"
    options = _private_apt(state, source, settings)
    steps = (
        ["apt-get", *options, "update"],
        ["apt-get", *options, "source", "--download-only", f"{source.package}={source.version}"],
    )
    with console.step(f"fetch Debian source {source.package} {source.version}"):
        for step in steps:
            done = subprocess.run(
                step, stdin=subprocess.DEVNULL, cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SourceUnreachable(
                    f"`{' '.join(step[:1] + step[-2:])}` failed: {done.stderr.strip()[-600:]}",
                    remedy="set base_mirror to a Debian mirror that you reach, or source_mirror to a directory",
                )


def _private_apt(state: Path, source: Source, settings: Settings) -> list[str]:
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    signed = f"[signed-by={_KEYRING}] " if _KEYRING.is_file() else ""
    sources = state / "sources.list"
    sources.touch(mode=0o600)  # a mirror's address may hold a password
    sources.write_text(f"deb-src {signed}{settings.base_mirror or machine_mirror()} {source.suite} main\n", "utf-8")
    values = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": state / "lists",
        "Dir::Cache": state,
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def machine_mirror() -> str:
    """The address from which this machine's apt takes Debian's main archive.

    Raises :class:`SourceUnreachable` on a machine that has none, such as Ubuntu's.
    """
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)", "Created-By: Packages"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        address, *names = line.split()
        if names == ["Debian", "Debian"]:
            return address
    raise SourceUnreachable(
        "this machine's apt has no Debian archive to take sources from",
        remedy="run `apt-get update` once on Debian, or set base_mirror to a Debian mirror",
    )
