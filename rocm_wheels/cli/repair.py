"""Making wheels portable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.cli._common import JSON, WHEEL
from rocm_wheels.console import Console, exit_codes, print_json, print_table

if TYPE_CHECKING:
    from rocm_wheels.repair import RepairOptions, RepairPlan


@task(
    iterable=["lib_dir", "exclude", "absolute", "requires"],
    help={
        **WHEEL,
        "mode": "thin: ROCm from outside; fat: ROCm grafted; retag; rpath",
        "dest": "directory for the result",
        "arch": "GPU targets whose data files are grafted, separated by ';'",
        "lib-dir": "directory to graft from (repeatable)",
        "exclude": "library that stays outside (repeatable)",
        "absolute": "directory that ends every RPATH, such as /opt/rocm/lib (repeatable)",
        "requires": "requirement that brings ROCm to a thin wheel, such as rocm-sdk-core==7.1.* (repeatable)",
        "plat": "platform tag that must be met",
        "keep-stack": "leave executable stacks as they are",
        "image": "builder image whose ROCm is grafted; default: what this machine has",
        "dry-run": "print the plan, write nothing",
        **JSON,
    },
)
def repair(
    _: Context,
    wheel: str,
    mode: str = "thin",
    dest: str = "",
    arch: str = "",
    lib_dir: list[str] | None = None,
    exclude: list[str] | None = None,
    absolute: list[str] | None = None,
    requires: list[str] | None = None,
    plat: str = "",
    keep_stack: bool = False,
    image: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Make wheels portable.

    Example: invoke repair dist/built --mode fat --arch gfx1030 --image debian-trixie
    """
    from rocm_wheels.config import load

    with exit_codes(as_json=json):
        options = _options(mode, arch, plat=plat, keep_stack=keep_stack)
        options = replace(
            options,
            lib_dirs=tuple(Path(d) for d in lib_dir or ()),
            exclude=tuple(exclude or ()),
            absolute=tuple(absolute or ()),
            requires=tuple(requires or ()),
        )
        dest = dest or f"dist/{mode}"
        if image:
            _repair_in_image(image, wheel, options, Path(dest), dry_run=dry_run, as_json=json)
        else:
            _repair(wheel, options, dest, load().memory, dry_run=dry_run, as_json=json)


def _options(mode: str, arch: str, *, plat: str, keep_stack: bool) -> RepairOptions:
    """Options of a command line, checked; raises :class:`UsageError` and :class:`UnknownArch`."""
    from rocm_wheels.errors import UsageError, nearest
    from rocm_wheels.gpu import parse_archs
    from rocm_wheels.repair import MODES, RepairOptions

    known = next((m for m in MODES if m == mode), None)
    if known is None:
        raise UsageError(f"there is no repair mode {mode!r}", remedy=nearest(mode, MODES))
    return RepairOptions(mode=known, archs=parse_archs(arch) if arch else (), plat=plat, keep_stack=keep_stack)


def _repair_in_image(
    image: str, wheel: str, options: RepairOptions, dest: Path, *, dry_run: bool, as_json: bool
) -> None:
    from rocm_wheels.cli._in_image import run_in_image
    from rocm_wheels.wheel.find import find_wheels

    several = {
        "--lib-dir": map(str, options.lib_dirs),
        "--exclude": options.exclude,
        "--absolute": options.absolute,
        "--requires": options.requires,
    }
    words = [f"{name}={value}" for name, values in several.items() for value in values]
    words += [f"--mode={options.mode}", f"--arch={';'.join(options.archs)}", f"--plat={options.plat}", "--dest=/dest"]
    words += ["--keep-stack"] * options.keep_stack + ["--dry-run"] * dry_run + ["--json"] * as_json
    for path in find_wheels(wheel):
        command = ["repair", f"/wheels/{path.name}", *words]
        if code := run_in_image(image, command, path.parent.resolve(), dest.resolve(), Console(quiet=as_json)):
            raise SystemExit(code)


def _repair(wheel: str, options: RepairOptions, dest: str, memory: int, *, dry_run: bool, as_json: bool) -> None:
    from rocm_wheels.repair import apply_plan, check_results, plan_repair
    from rocm_wheels.wheel.find import find_wheels

    console = Console(quiet=as_json)
    plans = []
    for path in find_wheels(wheel):
        with console.step(f"plan {path.name}"):
            plans.append(plan_repair(path, options, memory_mib=memory))
    check_results(plans)
    if not dry_run:
        for plan in plans:
            apply_plan(plan, Path(dest), console, memory_mib=memory)
    if as_json:
        print_json([plan.as_dict() for plan in plans])
        return
    for plan in plans:
        _print_plan(plan, dest, dry_run=dry_run)


def _print_plan(plan: RepairPlan, dest: str, *, dry_run: bool) -> None:
    changes = [(e.member, "; ".join(e.reasons)) for e in plan.elves if e.edit]
    grafted = [(g.member, f"from {g.source} ({g.package} {g.version})") for g in plan.grafts]
    print_table(("file", "change"), [*changes, *grafted], title=f"{dest}/{plan.name}")
    if dry_run:
        needs = [(e.member, n.name, n.provider, n.where) for e in plan.elves for n in e.needs]
        print_table(("file", "needs", "from", "where"), needs)
    brought = [(str(contract), contract.declared, ", ".join(names)) for contract, names in plan.contracts]
    if brought:
        print_table(("from outside", "METADATA says", "libraries"), brought)
    for note in plan.notes:
        print(f"note: {note}")
    if plan.measured.blockers:
        print(f"{plan.measured.policy.tag}: an older platform is forbidden: {plan.measured.blockers[0]}")
