"""ROCm once, frameworks thin over it."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON, WHEEL
from rocm_wheels.console import Console, exit_codes, print_json, print_table


@task(
    iterable=["lib_dir"],
    help={
        **WHEEL,
        "dest": "directory for the result",
        "base": "base wheels to build upon instead of making them",
        "arch": "GPU targets whose data is taken from this machine, separated by ';'",
        "lib-dir": "directory to take ROCm from (repeatable)",
        "sdk": "release of AMD's SDK wheels to require instead of base wheels of ours, such as 7.14.0",
        "rocm": "ROCm release of the base, when no wheel tells it",
        "device-extras": "leave device data to an extra per GPU target",
        "dry-run": "print the plan for wheels that carry ROCm, write nothing",
        **JSON,
    },
)
def layers(
    _: Context,
    wheel: str,
    dest: str = "dist/layers",
    base: str = "",
    arch: str = "",
    lib_dir: list[str] | None = None,
    sdk: str = "",
    rocm: str = "",
    device_extras: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Split wheels into ROCm's base wheels and a thin wheel each.

    Example: invoke layers dist/fat --dest dist/layers
    """
    from rocm_wheels.config import load
    from rocm_wheels.gpu import parse_archs
    from rocm_wheels.layers import LayerOptions, make_layers, plan_layers
    from rocm_wheels.layers.sdk import over_sdk
    from rocm_wheels.publish.pages import human_size
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes(as_json=json):
        options = LayerOptions(
            base=tuple(find_wheels(base)) if base else (),
            archs=parse_archs(arch) if arch else (),
            lib_dirs=tuple(map(Path, lib_dir or ())),
            rocm=rocm,
            device_extras=device_extras,
        )
        memory = load().memory
        if sdk:
            console = Console(quiet=json)
            made = [over_sdk(path, sdk, Path(dest), console, memory_mib=memory) for path in find_wheels(wheel)]
            print_json([str(path) for path in made]) if json else print_table(("wheel",), [(p,) for p in made])
            return
        if dry_run:
            plan = plan_layers(find_wheels(wheel), options, memory)
            if json:
                print_json(plan.as_dict())
                return
            rows = [(w.name, len(w.pieces), len(w.edits), ", ".join(w.requires)) for w in plan.wheels]
            print_table(("wheel", "files", "edited", "requires"), rows, title=dest)
            return
        report = make_layers(find_wheels(wheel), options, Path(dest), Console(quiet=json), memory_mib=memory)
        if json:
            print_json(report.as_dict())
            return
        print_table(("wheel", "size"), [(name, human_size(size)) for name, size in report.wheels], title=dest)
        for text in report.sentences():
            print(text)
