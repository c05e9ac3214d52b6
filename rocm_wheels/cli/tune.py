"""Running what was built: environment and profile."""

from __future__ import annotations

import shlex
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON
from rocm_wheels.console import exit_codes, print_json, print_table


@task(
    iterable=["device"],
    help={
        "version": "the wheel's version, such as 2.6.0+rocm5.7",
        "gpu": "product or target; default: the first card of this machine",
        "device": "index of a GPU that stays visible (repeatable)",
        "dest": "file to write; default: standard output",
        "explain": "print a table of all variables instead",
        **JSON,
    },
)
def env(
    _: Context,
    version: str = "wheel",
    gpu: str = "",
    device: list[str] | None = None,
    dest: str = "",
    explain: bool = False,
    json: bool = False,
) -> None:
    """Write a file of environment variables to source before a wheel runs.

    Example: invoke env --version 2.6.0+rocm5.7 --gpu 'RX 6600' --dest activate-rocm.sh
    """
    from rocm_wheels.errors import UsageError
    from rocm_wheels.gpu.cards import find
    from rocm_wheels.gpu.detect import detect
    from rocm_wheels.tune import activation_file, load_variables

    with exit_codes(as_json=json):
        if explain or json:
            rows = [(v.name, v.kind, v.meaning, v.source) for v in load_variables()]
            names = ("variable", "kind", "meaning", "source")
            if json:
                print_json([dict(zip(names, row, strict=True)) for row in rows])
            else:
                print_table(names, rows)
            return
        found = [card.gfx for card in find(gpu)] if gpu else [each.gfx for each in detect() if each.gfx]
        if not found:
            raise UsageError("this machine has no AMD GPU to take the target from", remedy="name one: --gpu gfx1030")
        text = activation_file(version, found[0], devices=device or ())
        if dest:
            Path(dest).write_text(text, "utf-8")
            print(dest)
        else:
            print(text, end="")


@task(
    help={
        "script": "Python file or quoted command; or a directory or CSV that a profiler has left",
        "dest": "directory for what the profiler writes and the picture",
        **JSON,
    }
)
def profile(_: Context, script: str, dest: str = "profile", json: bool = False) -> None:
    """Show where a program's GPU time goes, by the profiler of the ROCm at hand.

    Example: invoke profile 'train.py --steps 10'
    """
    from rocm_wheels import tune

    with exit_codes(as_json=json):
        folder, given = Path(dest), Path(script)
        if given.is_dir() or given.suffix == ".csv":
            found = tune.read_profile(given)
        else:
            found = tune.run_profiler(tune.find_profiler(), shlex.split(script), folder / "raw")
        folder.mkdir(parents=True, exist_ok=True)
        picture = folder / "profile.html"
        picture.write_text(tune.html(found, script), "utf-8")
        rows = [(k.name, k.calls, k.total_ns, round(k.average_us, 1)) for k in found.kernels]
        columns = ("kernel", "calls", "total_ns", "average_us")
        if json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows[:30], title=str(picture))
