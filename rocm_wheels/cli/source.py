"""Sources and their patches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import Console, exit_codes, print_json, print_table


@task(help={"release": "framework release", "dest": "directory for the patched tree"})
def fetch(_: Context, release: str, dest: str) -> None:
    """Fetch, verify and patch a release's source.

    Example: invoke fetch 2.6.0 /tmp/pytorch
    """
    from rocm_wheels import source
    from rocm_wheels.config import load
    from rocm_wheels.release import load_matrix

    with exit_codes():
        plan = source.plan_checkout(load_matrix().release(release), settings=load())
        print(source.prepare(plan, Path(dest).resolve(), settings=load(), console=Console()).path)


@task(
    help={
        "release": "framework release",
        "ref": "tag, branch or commit; default: the commit of the official wheels",
        "fork": "AMD's fork instead of upstream; default there: its release branch",
        "update": "take a new state over into the lock that is there",
        **JSON,
    }
)
def lock(_: Context, release: str, ref: str = "", fork: bool = False, update: bool = False, json: bool = False) -> None:
    """Resolve a release's git source and submodules to commits, in locks/.

    Example: invoke lock 2.9.1 --fork
    """
    from rocm_wheels.config import load
    from rocm_wheels.release import load_matrix
    from rocm_wheels.source.lock import resolve, write_lock

    with exit_codes(as_json=json):
        row = load_matrix().release(release)
        found = resolve(row, ref=ref, fork=fork, settings=load(), console=Console(quiet=json))
        changed = write_lock(found, update=update)
        if json:
            print_json({**dataclasses.asdict(found), "changed": changed})
        else:
            rows = [("", found.commit, found.url), *((m.path, m.commit, m.url) for m in found.submodules)]
            print_table(("submodule", "commit", "from"), rows, title=f"locks/{found.release}.toml")
            for line in changed:
                print(f"changed {line}")


@task(
    help={
        "release": "framework release",
        "tree": "source tree: a git checkout or one from `invoke fetch`",
        "status": "say of each patch whether it applies (the default)",
        "new": "title: turn what was changed in the tree into the next patch",
        "refresh": "rewrite the patches for the lines of this tree, up to the first conflict",
        "phase": "with --new: base or hipified",
        **JSON,
    }
)
def patch(
    _: Context,
    release: str,
    tree: str,
    status: bool = False,
    new: str = "",
    refresh: bool = False,
    phase: str = "base",
    json: bool = False,
) -> None:
    """Try, make or renew the patches of a release; the tree stays as it is.

    Example: invoke patch 2.6.0 /tmp/pytorch --new 'Find HIP below /usr'
    """
    from rocm_wheels import source
    from rocm_wheels.config import load
    from rocm_wheels.errors import UsageError, nearest
    from rocm_wheels.release import load_matrix
    from rocm_wheels.source import series
    from rocm_wheels.source.model import PHASES

    with exit_codes(as_json=json):
        if status + bool(new) + refresh > 1:
            raise UsageError("--status, --new and --refresh exclude each other", remedy="give one of them")
        known = next((p for p in PHASES if p == phase), None)
        if known is None:
            raise UsageError(f"there is no phase {phase!r}", remedy=nearest(phase, PHASES))
        plan = source.plan_checkout(load_matrix().release(release), settings=load())
        columns: tuple[str, ...] = ("patch", "state", "reason")
        rows: list[tuple[str, ...]]
        if new:
            console = Console(quiet=json)
            path = series.new_patch(new, Path(tree), plan=plan, phase=known, settings=load(), console=console)
            console.line("fill in Why, Link and Tested in its header")
            columns, rows = ("patch",), [(str(path),)]
        elif refresh:
            columns, rows = (
                ("patch", "state"),
                [(r.patch.name, r.state) for r in series.refresh(plan.patches, Path(tree))],
            )
        else:
            rows = [(s.patch.name, s.state, s.reason) for s in source.classify(plan.patches, Path(tree))]
        if json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)
