"""The invoke tasks, a module per stage: options in, one call, a table or JSON out.

A task imports what it calls when it runs, so that `invoke -l` stays quick.
"""

import difflib
import importlib
import pkgutil

from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.tasks import Task


def collection() -> Collection:
    """Every task of every module of this package, in one flat list."""
    found = Collection()
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Task):
                found.add_task(value)
    names = sorted(found.task_names)
    ParseError.__str__ = lambda error: _explained(error, names)  # type: ignore[method-assign, arg-type]
    return found


def _explained(error: ParseError, names: list[str]) -> str:
    """What invoke says of a command line that it cannot read, with the next command to type."""
    text = str(error.args[0])
    word = text.split("'")[1] if text.startswith("No idea what '") else ""
    task = error.context.name if error.context else None
    if not word.startswith("-") and (near := difflib.get_close_matches(word, names, 3)):
        hint = f"did you mean {', '.join(near)}? `invoke -l` lists the tasks"
    else:
        hint = f"invoke --help {task}" if task else "invoke -l"
    return f"error: {text}\n  → {hint}"
