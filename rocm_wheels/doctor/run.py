"""Runs all checks at once, each in a thread of its own, and never waits longer than a few seconds for the last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.doctor import chain, containers, machine, network, project
from rocm_wheels.doctor.model import Result, State
from rocm_wheels.errors import RocmWheelsError

Check = Callable[[Settings], Iterable[Result]]

#: Every check by its id, in the order of the report.
CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "engine": containers.check_engine,
        "disk": machine.check_disk,
        "memory": machine.check_memory,
        "tools": project.check_tools,
        "repair-chain": chain.check_chain,
        "network": network.check_network,
        "clock": network.check_clock,
        "pins": project.check_pins,
        "patches": project.check_patches,
        "archs": project.check_archs,
        "keys": machine.check_keys,
        "gpu": machine.check_gpu,
    }
)
# The whole report must come within ten seconds, start and print included.
DEADLINE = 8.0


def examine(
    settings: Settings, checks: Mapping[str, Check] = CHECKS, *, deadline: float = DEADLINE
) -> tuple[Result, ...]:
    """Run ``checks``; one that is not done after ``deadline`` seconds is reported so and left behind."""
    results: dict[str, tuple[Result, ...]] = {}
    threads = [
        threading.Thread(target=_run, args=(name, check, settings, results), name=name, daemon=True)
        for name, check in checks.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    hung = f"no answer after {deadline:.0f} s"
    remedy = "something that it asks hangs, or this machine is overloaded: run again"
    missing = {name: (Result(name, State.WARNING, hung, remedy),) for name in checks}
    return tuple(result for name in checks for result in results.get(name, missing[name]))


def mend(results: Sequence[Result], console: Console) -> tuple[str, ...]:
    """Carry out the fixes of ``results``; returns the ids of the checks that were fixed."""
    mended = []
    for result in results:
        if result.fix and result.state in (State.WARNING, State.FAILED):
            with console.step(result.remedy):
                result.fix(console)
            mended.append(result.check)
    return tuple(mended)


def _run(name: str, check: Check, settings: Settings, results: dict[str, tuple[Result, ...]]) -> None:
    try:
        results[name] = tuple(check(settings))
    except RocmWheelsError as error:
        results[name] = (Result(name, State.FAILED, error.message, error.remedy),)
    except Exception as error:  # a check must not take the report down with it
        results[name] = (Result(name, State.FAILED, f"{type(error).__name__}: {error}", "this check itself is broken"),)
