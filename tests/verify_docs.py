"""The generated parts of docs/verify.md; `python -m tests.verify_docs` writes the list of checks anew."""

from __future__ import annotations

from pathlib import Path

from rocm_wheels.verify import catalogue

_HEADINGS = "| check | | what holds | otherwise | what mends it |"
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
    before, after = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    assert before in text and after in text, f"docs/verify.md has no part {name}"
    return text.partition(before)[2].partition(after)[0]


def replace_part(name: str, content: str) -> None:
    """Write ``content`` between the marks of ``name``."""
    before, after = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
    text = PAGE.read_text("utf-8")
    head, tail = text.partition(before)[0], text.partition(after)[2]
    PAGE.write_text(f"{head}{before}{content}{after}{tail}", "utf-8")


if __name__ == "__main__":
    replace_part("checks", checks())
