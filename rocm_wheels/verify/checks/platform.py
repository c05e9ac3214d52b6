"""The tag's promise against the symbol versions of all files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rocm_wheels.elf.reader import EM_X86_64
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject
from rocm_wheels.wheel.tags import blockers, find_policy


def platform(subject: Subject) -> Iterator[Finding]:
    """No file needs more than a tag promises; one finding per tag and version, naming file and symbol."""
    files = [e for e in subject.elves.values() if e.machine == EM_X86_64]
    for tag in sorted({t.platform for t in subject.archive.tags}):
        policy = find_policy(tag)
        if policy is None:
            if tag == "any" and files:
                yield finding("platform", files[0].name, "the tag says 'any', this file is for x86-64 Linux")
            continue
        found = defaultdict(list)
        for blocker in blockers(policy, files):
            found[blocker.library, blocker.version].append(blocker.member)
        for (library, version), members in found.items():
            symbol = subject.elves[members[0]].symbols.get(version, "")
            what = f"{symbol + '@' if symbol else ''}{version} of {library}" if version else library
            more = f", nor to {len(members) - 1} more files" if len(members) > 1 else ""
            yield finding("platform", members[0], f"{tag} does not promise {what}{more}", symbol=symbol)
