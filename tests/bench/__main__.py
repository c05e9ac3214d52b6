"""Measurements by name: ``python -m tests.bench NAME [options]``; each module beside this one is one of them."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import tests.bench


def main() -> None:
    """Run the measurement that the first argument names."""
    modules = (m.name for m in pkgutil.iter_modules(tests.bench.__path__))
    known = [name for name in modules if name not in ("__main__", "jobs", "measure", "wheels")]
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        raise SystemExit(f"usage: nox -s bench -- NAME [options]\nmeasurements: {', '.join(sorted(known))}")
    importlib.import_module(f"tests.bench.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
