"""The invoke tasks, a module per stage: options in, one call, a table or JSON out.

A task imports what it calls when it runs, so that `invoke -l` stays quick.
"""

import importlib
import pkgutil

from invoke.collection import Collection
from invoke.tasks import Task


def collection() -> Collection:
    """Every task of every module of this package, in one flat list."""
    found = Collection()
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Task):
                found.add_task(value)
    return found
