"""Which compilers a tree is built with: recorded once, and the same for as long as the tree lives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rocm_wheels.errors import ToolchainChanged

# The list of the image's packages; without one (`--engine none`) what the compilers say of themselves.
COMMAND = (
    "sh",
    "-c",
    "cat /opt/rocm-wheels/packages.tsv 2>/dev/null || for tool in hipcc cc c++ ld cmake; do $tool --version; done",
)
_PACKAGE = re.compile(
    r"^(binutils|clang|cpp|g\+\+|gcc|hipcc|lib(amd|clang|hip|llvm|roc)|lld|llvm|rocm?-)", re.IGNORECASE
)


def record_toolchain(path: Path, run: Callable[[Sequence[str], Callable[[str], None]], None]) -> None:
    """Write to ``path`` what ``run`` finds installed, or see that it is what ``path`` says.

    An image of the same name may be built again from a suite that moves: objects of two compilers must not meet in
    one wheel. Raises :class:`ToolchainChanged`.
    """
    lines: list[str] = []
    run(COMMAND, lines.append)
    packages = [line for line in lines if line.count("\t") == 2]
    text = "\n".join([line for line in packages if _PACKAGE.match(line)] or lines) + "\n"
    if not path.is_file():
        path.write_text(text, "utf-8")
        return
    before, now = set(path.read_text("utf-8").splitlines()), set(text.splitlines())
    if before != now:
        changed = ", ".join(sorted(now - before)[:4]).replace("\t", " ") or "packages were removed"
        raise ToolchainChanged(
            f"the image has other compilers than this tree was begun with: {changed}",
            remedy="begin again, what has not changed comes from the compiler cache: --fresh",
        )
