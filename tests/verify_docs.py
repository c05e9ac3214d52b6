"""The generated parts of docs/verify.md; `python -m tests.verify_docs` writes the list of checks anew."""

from __future__ import annotations

import re
from pathlib import Path

from rocm_wheels.verify import catalogue

PAGE = Path(__file__).parents[1] / "docs" / "verify.md"


def checks() -> str:
    """One table per group: id, severity, what, why and what mends it."""
    lines: list[str] = []
    group = ""
    for check in catalogue().values():
        if check.group != group:
            group = check.group
            lines += [
                "",
                f"### {group}",
                "",
                "| check | | what holds | otherwise | what mends it |",
                "|---|---|---|---|---|",
            ]
        cells = (f"`{check.id}`", check.severity.name.lower(), check.what, check.why, check.remedy)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines).strip()


def part(text: str, name: str) -> str:
    """What stands between the marks of ``name``."""
    match = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", text, re.DOTALL)
    assert match, f"docs/verify.md has no part {name}"
    return match[1]


def replace_part(name: str, content: str) -> None:
    """Write ``content`` between the marks of ``name``."""
    text = PAGE.read_text("utf-8")
    PAGE.write_text(text.replace(part(text, name), content), "utf-8")


if __name__ == "__main__":
    replace_part("checks", checks())
