"""Bounds what threads hold at the same time, so that memory does not grow with the wheel."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

WORKERS = min(8, os.cpu_count() or 1)


class Budget:
    """So many bytes for all threads together; a piece larger than all of it gets all of it."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._change = threading.Condition()

    @contextmanager
    def take(self, size: int) -> Iterator[None]:
        """Wait until ``size`` bytes are free and hold them for the block."""
        share = min(size, self._size)
        with self._change:
            self._change.wait_for(lambda: self._free >= share)
            self._free -= share
        try:
            yield
        finally:
            with self._change:
                self._free += share
                self._change.notify_all()

    def reserve(self, size: int) -> bool:
        """Take ``size`` bytes for good if they are free; whether they were."""
        with self._change:
            free = size <= self._free
            self._free -= size if free else 0
        return free
