"""What was sent where: JSON lines beside the cache, so that a rerun continues instead of starting over.

The index decides whether a file is there. The journal only spares the second download of what this machine has already
read back, and tells which upload was under way when a run was killed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Event = Literal["sending", "stored", "read-back"]


@dataclass(frozen=True)
class Journal:
    """The journal of one target; ``path`` may not exist yet."""

    path: Path

    def events(self, filename: str, sha256: str) -> tuple[Event, ...]:
        """What happened to these bytes so far, oldest first; a line cut by a crash is passed over."""
        if not self.path.is_file():
            return ()
        found: list[Event] = []
        for line in self.path.read_text("utf-8").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            if (entry["file"], entry["sha256"]) == (filename, sha256):
                found.append(entry["event"])
        return tuple(found)

    def note(self, event: Event, filename: str, sha256: str) -> None:
        """Append one event; it is on disk when this returns to the caller's next step."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, "file": filename, "sha256": sha256}) + "\n")


def journal_for(address: str, cache: Path) -> Journal:
    """The journal of a target; its name is a hash, because addresses may be private."""
    return Journal(cache / "publish" / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.jsonl")
