"""All checks that read the wheel and load nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rocm_wheels.errors import BrokenWheel
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.checks import archive, closure, coverage, data, elf, identity, names, package, platform, python
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject

CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    archive.record,
    archive.files,
    package.metadata,
    package.licences,
    elf.check,
    closure.closure,
    names.names,
    names.opened,
    identity.contents,
    identity.versions,
    identity.rocm,
    python.extensions,
    coverage.coverage,
    data.data,
    platform.platform,
)


def run_static(subject: Subject) -> tuple[Finding, ...]:
    """All findings of the checks that load nothing, once each, in the order of the groups."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(subject)
        except BrokenWheel as error:
            found.append(finding("metadata", subject.name, error.message))
    return tuple(dict.fromkeys(found))
