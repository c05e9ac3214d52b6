"""Bringing wheels to an index, and static indexes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON, WHEEL, whole_number
from rocm_wheels.console import Console, exit_codes, print_json, print_table


@task(
    iterable=["allow"],
    help={
        **WHEEL,
        "to": "address, dir:PATH, or name in .pypirc",
        "allow": "check whose findings do not keep a wheel from going out (repeatable)",
        "key": "private key to sign with (`invoke keygen`)",
        "dry-run": "say what would be sent and stop",
        **JSON,
    },
)
def publish(
    _: Context,
    wheel: str,
    to: str = "",
    allow: list[str] | None = None,
    key: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Verify wheels and bring them to an index.

    Example: invoke publish dist/fat --to http://localhost:8080/
    """
    from rocm_wheels import publish as publishing
    from rocm_wheels.config import load
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes(as_json=json):
        settings = load({"index": to or None})
        console = Console(quiet=json)
        report = publishing.publish(
            find_wheels(wheel),
            settings.index,
            settings=settings,
            console=console,
            dry_run=dry_run,
            verify=lambda paths: _judged(paths, allow or (), console),
            key=Path(key) if key else None,
        )
        if json:
            print_json(report.as_dict())
            return
        rows = [(w.requirement, w.filename) for w in report.wheels]
        print_table(("requirement", "file"), rows, title=report.index_url)


def _judged(paths: Sequence[Path], allow: Sequence[str], console: Console) -> dict[str, list[str]]:
    """The checks of ``allow`` that have found something, by wheel; raises :class:`WheelRejected` on errors."""
    from rocm_wheels import verify
    from rocm_wheels.cli.verify import refuse

    report = verify.verify(paths, verify.VerifyOptions(allow=tuple(allow)), console)
    refuse(report)
    return {w.wheel.name: sorted({f.check.id for f in w.findings} & set(allow)) for w in report.wheels}


@task(
    help={
        "wheel": "renamed wheel, such as torch_rocm-….whl",
        "name": "distribution that others ask for",
        "dest": "for the shim",
    }
)
def shim(_: Context, wheel: str, name: str, dest: str = "dist/shims") -> None:
    """Make a wheel without files by which a renamed one answers to NAME.

    Example: invoke shim torch_rocm-2.6.0+rocm5.7-cp313-cp313-linux_x86_64.whl torch
    """
    from rocm_wheels.publish.shim import make_shim

    with exit_codes():
        print(make_shim(Path(wheel), name, Path(dest)))


@task(help={"path": "file for the private key; the public one is written beside it as .pub"})
def keygen(_: Context, path: str) -> None:
    """Make a key that signs what the team publishes.

    Example: invoke keygen ~/.config/team.key
    """
    from rocm_wheels.publish.attest import make_key

    with exit_codes():
        print(make_key(Path(path).expanduser()))


@task(help={**WHEEL, "key": "the team's public key", **JSON})
def attested(_: Context, wheel: str, key: str, json: bool = False) -> None:
    """Check that wheels are the ones that the team signed.

    Example: invoke attested downloads --key team.key.pub
    """
    from rocm_wheels.publish.attest import check
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes(as_json=json):
        manifests = [check(path, Path(key)) for path in find_wheels(wheel)]
        if json:
            print_json(manifests)
            return
        rows = [(m["file"], " ".join(m["archs"]), " ".join(m["checks"]["allowed"]) or "none") for m in manifests]
        print_table(("signed", "GPUs", "waived checks"), rows)


@task(help={"directory": "directory with wheels", "channels": "it holds a directory with wheels per channel"})
def index(_: Context, directory: str, channels: bool = False) -> None:
    """Bring a static index up to date; any web server can serve it.

    Example: invoke index /srv/wheels
    """
    from rocm_wheels.publish.index import update_channels, update_index

    with exit_codes():
        if channels:
            reports = update_channels(Path(directory), console=Console())
        else:
            _no_mistake(Path(directory))
            reports = {directory: update_index(Path(directory), console=Console())}
        rows = [(name, r.total, len(r.read), len(r.removed)) for name, r in reports.items()]
        print_table(("index", "wheels", "new", "gone"), rows)


def _no_mistake(directory: Path) -> None:
    """Leave no pages in a directory that was named by mistake: raises where neither a wheel nor an index is."""
    from rocm_wheels.publish.index import is_index
    from rocm_wheels.wheel.find import find_wheels

    if directory.is_dir() and not is_index(directory):
        find_wheels(str(directory))


@task(help={"directory": "static index", "filename": "wheel", "reason": "what installers show"})
def yank(_: Context, directory: str, filename: str, reason: str = "") -> None:
    """Keep installers from choosing a wheel of a static index.

    Example: invoke yank /srv/wheels a-1-py3-none-any.whl
    """
    from rocm_wheels.publish import yank as run

    with exit_codes():
        run(Path(directory), filename, reason, console=Console())


@task(help={"directory": "directory with wheels", "port": "0 takes any free one"})
def serve(_: Context, directory: str, port: str = "8080") -> None:
    """Serve a static index on this machine for a quick look.

    Example: invoke serve /srv/wheels --port 8080
    """
    from rocm_wheels.publish.serve import serve as run

    with exit_codes():
        _no_mistake(Path(directory))
        run(Path(directory), console=Console(), port=whole_number(port, "port"))


@task(
    iterable=["python"],
    help={**WHEEL, "dest": "directory to fill", "python": "interpreter to collect for (repeatable)"},
)
def wheelhouse(_: Context, wheel: str, dest: str, python: list[str] | None = None) -> None:
    """Collect what wheels need at run time.

    Example: invoke wheelhouse dist/fat wheelhouse --python python3.13
    """
    from rocm_wheels.publish.wheelhouse import wheelhouse as run
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes():
        for path in run(find_wheels(wheel), python or ["python3"], Path(dest), console=Console()):
            print(path)
