"""Single steps as tasks: `invoke -l`. Builds and tests are nox sessions: `nox -l`."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from rocm_wheels.console import Console, exit_codes, print_json, print_table

JSON = {"json": "print the result for machines"}


@task(help=JSON)
def config(_: Context, json: bool = False) -> None:
    """Show each setting, its value and where it came from. Example: invoke config"""
    from rocm_wheels.config import explain

    with exit_codes(as_json=json):
        found = explain()
        if json:
            print_json([vars(s) for s in found])
        else:
            print_table(("setting", "value", "from", "meaning"), [(s.name, s.value, s.origin, s.help) for s in found])


@task(help=JSON)
def releases(_: Context, json: bool = False) -> None:
    """Show what can be built, in which image, for which Python and GPU. Example: invoke releases"""
    from rocm_wheels import pipeline

    with exit_codes(as_json=json):
        pipeline.show_releases(as_json=json)


@task(help={"name": "builder image", "prune": "remove our older images instead"})
def image(_: Context, name: str = "debian-trixie", prune: bool = False) -> None:
    """Make a builder image, or remove outdated ones. Example: invoke image --name debian-trixie"""
    from rocm_wheels import pipeline
    from rocm_wheels.config import load

    with exit_codes():
        pipeline.make_image(name, load(), prune=prune)


@task(help={"release": "framework release", "dest": "directory for the patched tree"})
def fetch(_: Context, release: str, dest: str) -> None:
    """Fetch, verify and patch a release's source. Example: invoke fetch 2.6.0 /tmp/pytorch"""
    from rocm_wheels import source
    from rocm_wheels.config import load
    from rocm_wheels.release import load_matrix

    with exit_codes():
        plan = source.plan_checkout(load_matrix().release(release), settings=load())
        print(source.prepare(plan, Path(dest).resolve(), settings=load(), console=Console()).path)


@task(help={"release": "framework release", "tree": "source tree to try the series on", **JSON})
def patch(_: Context, release: str, tree: str, json: bool = False) -> None:
    """Say of each patch whether it applies to a tree, which stays as it is. Example: invoke patch 2.6.0 /tmp/pytorch"""
    from rocm_wheels import source
    from rocm_wheels.config import load
    from rocm_wheels.release import load_matrix

    with exit_codes(as_json=json):
        plan = source.plan_checkout(load_matrix().release(release), settings=load())
        found = source.classify(plan.patches, Path(tree))
        rows = [(s.patch.name, s.state, s.reason) for s in found]
        if json:
            print_json([dict(zip(("patch", "state", "reason"), row, strict=True)) for row in rows])
        else:
            print_table(("patch", "state", "reason"), rows)


@task(
    iterable=["lib_dir", "exclude", "absolute"],
    help={
        "wheel": "wheel, directory or quoted pattern",
        "mode": "thin: ROCm from outside; fat: ROCm grafted; retag; rpath",
        "dest": "directory for the result",
        "arch": "GPU targets whose data files are grafted, separated by ';'",
        "lib-dir": "directory to graft from (repeatable)",
        "exclude": "library that stays outside (repeatable)",
        "absolute": "directory that ends every RPATH, such as /opt/rocm/lib (repeatable)",
        "plat": "platform tag that must be met",
        "keep-stack": "leave executable stacks as they are",
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
    plat: str = "",
    keep_stack: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Make wheels portable. Example: invoke repair dist/built --mode fat --arch gfx1030 --dest dist/fat"""
    from rocm_wheels import pipeline

    with exit_codes(as_json=json):
        options = pipeline.repair_options(
            mode, arch, lib_dir or (), exclude or (), absolute or (), plat=plat, keep_stack=keep_stack
        )
        pipeline.repair(wheel, options, dest or f"dist/{mode}", dry_run=dry_run, as_json=json)


@task(
    iterable=["python", "allow"],
    help={
        "wheel": "wheel, directory or quoted pattern",
        "arch": "GPU targets that it must serve, separated by ';'",
        "profile": "torch, torch-dependant, tensorflow, jax, rocm-base or any; default: by name",
        "python": "interpreter to install and load it with (repeatable)",
        "allow": "check whose findings do not count as errors (repeatable)",
        **JSON,
    },
)
def verify(
    _: Context,
    wheel: str,
    arch: str = "",
    profile: str = "",
    python: list[str] | None = None,
    allow: list[str] | None = None,
    json: bool = False,
) -> None:
    """Judge wheels; exit code 80 on errors. Example: invoke verify dist/fat --arch gfx1030 --python python3.13"""
    from rocm_wheels import pipeline

    with exit_codes(as_json=json):
        options = pipeline.verify_options(arch, profile, python or (), allow or ())
        pipeline.verify(wheel, options, as_json=json)


@task(help={"check": "id of a check, as verify prints it"})
def explain(_: Context, check: str) -> None:
    """Say what a check of verify looks at, why, and what mends it. Example: invoke explain exec-stack"""
    from rocm_wheels import pipeline

    with exit_codes():
        pipeline.explain_check(check)


@task(help={"wheel": "wheel, directory or quoted pattern", "to": "address, dir:PATH, or name in .pypirc", **JSON})
def publish(_: Context, wheel: str, to: str = "", dry_run: bool = False, json: bool = False) -> None:
    """Verify wheels and bring them to an index. Example: invoke publish dist/fat --to http://localhost:8080/"""
    from rocm_wheels import pipeline
    from rocm_wheels.config import load

    with exit_codes(as_json=json):
        pipeline.publish_wheels(wheel, load({"index": to or None}), dry_run=dry_run, as_json=json)


@task(help={"directory": "directory with wheels"})
def index(_: Context, directory: str) -> None:
    """Bring a static index up to date; any web server can serve it. Example: invoke index /srv/wheels"""
    from rocm_wheels.publish import update_index

    with exit_codes():
        update_index(Path(directory), console=Console())


@task(help={"directory": "static index", "filename": "wheel", "reason": "what installers show"})
def yank(_: Context, directory: str, filename: str, reason: str = "") -> None:
    """Keep installers from choosing a wheel of a static index. Example: invoke yank /srv/wheels a-1-py3-none-any.whl"""
    from rocm_wheels.publish import yank as run

    with exit_codes():
        run(Path(directory), filename, reason, console=Console())


@task(iterable=["python"], help={"wheel": "wheel, directory or quoted pattern", "dest": "directory to fill"})
def wheelhouse(_: Context, wheel: str, dest: str, python: list[str] | None = None) -> None:
    """Collect what wheels need at run time. Example: invoke wheelhouse dist/fat wheelhouse --python python3.13"""
    from rocm_wheels.publish.wheelhouse import wheelhouse as run
    from rocm_wheels.wheel.find import find_wheels

    with exit_codes():
        for path in run(find_wheels(wheel), python or ["python3"], Path(dest), console=Console()):
            print(path)


@task(help={"directory": "directory with wheels", "port": "0 takes any free one"})
def serve(_: Context, directory: str, port: int = 8080) -> None:
    """Serve a static index on this machine for a quick look. Example: invoke serve /srv/wheels --port 8080"""
    from rocm_wheels.publish.serve import serve as run

    with exit_codes():
        run(Path(directory), console=Console(), port=port)


@task(
    iterable=["python"],
    help={"index-url": "the index", "requirement": "NAME==VERSION", "dest": "directory to write to"},
)
def consume(_: Context, index_url: str, requirement: str, dest: str, python: list[str] | None = None) -> None:
    """Write what a colleague installs with. Example: invoke consume URL torch==2.6.0+rocm5.7 setup"""
    from rocm_wheels.publish.consume import consume as write

    with exit_codes():
        for command in write(index_url, [requirement], python or ["python3"], Path(dest), console=Console()).commands:
            print(command)


@task(help={"index-url": "the index", "requirement": "NAME==VERSION", "python": "interpreter", "tool": "pip or uv"})
def install_back(_: Context, index_url: str, requirement: str, python: str, tool: str = "pip") -> None:
    """Install into a fresh environment, by hash. Example: invoke install-back URL torch==2.6.0 python3.13"""
    from rocm_wheels import pipeline

    with exit_codes():
        pipeline.install_from(index_url, requirement, python, tool)
