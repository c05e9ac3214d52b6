"""An inspection as one page that needs nothing else: no script, no file, no network."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rocm_wheels.inspect.model import Answer, Inspection
from rocm_wheels.inspect.picture import draw, groups, legend
from rocm_wheels.inspect.table import Table, size_text, tables

# The radio buttons switch between the two pictures without a script.
_STYLE = """
*{box-sizing:border-box}
body{font:14px/1.45 system-ui,"DejaVu Sans",sans-serif;color:#1d2129;background:#fff;margin:1.5em auto;max-width:100em;
  padding:0 1.5em}
h1{font-size:1.5em;margin:0 0 .2em}h2{font-size:1.1em;margin:1.4em 0 .3em}
.lead{color:#4a5260;margin:0 0 1em}
.side{display:flex;gap:1.5em;align-items:flex-start;flex-wrap:wrap}
.picture{flex:3 1 40em;min-width:0}.beside{flex:1 1 24em;min-width:0;overflow-x:auto}
.picture input{margin:0 .3em 0 0}.picture label{margin-right:1.2em}
svg{display:none;width:100%;height:auto;margin-top:.5em;border:1px solid #3b4350}
#packed:checked~.packed,#size:checked~.size{display:block}
rect{stroke:#fff;stroke-width:1}rect.box:hover{stroke:#1d2129;stroke-width:2}
text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#1d2129;pointer-events:none}
text.strip{fill:#fff;font-weight:600}text.amount{fill:#3b4350;font-size:11px}
.key span{margin-right:1.2em;white-space:nowrap}.key i{display:inline-block;width:.9em;height:.9em;margin-right:.4em;
  vertical-align:-.1em}
.scroll{overflow-x:auto}table{border-collapse:collapse}
th,td{text-align:left;vertical-align:top;padding:.15em 1em .15em 0;border-bottom:1px solid #e4e7eb}
th{border-bottom-color:#8a93a0;white-space:nowrap}td{overflow-wrap:break-word}
.beside td{white-space:nowrap}.beside td,.beside th{padding-right:.7em;font-size:13px}
"""
_BESIDE = ("Bytes by GPU", "Bytes by part")


def page(found: Inspection, answers: Sequence[Answer] = ()) -> str:
    """The HTML text."""
    title = f"{found.distribution} {found.version}"
    made = groups(found)
    all_tables = list(tables(found, answers))
    beside = "".join(_table(t) for t in all_tables if t.title in _BESIDE)
    below = "".join(_table(t) for t in all_tables if t.title not in _BESIDE)
    packed, unpacked = (draw(made, m).replace("<svg ", f'<svg class="{m}" ', 1) for m in ("packed", "size"))
    key = "".join(f'<span><i style="background:{fill}"></i>{escape(name)}</span>' for name, fill in legend(made))
    lead = f"{found.wheel.name}: {size_text(found.total.packed)} packed, {size_text(found.total.size)} unpacked"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>
<div class="side"><div class="picture">
<input type="radio" name="measure" id="packed" checked><label for="packed">in the wheel</label>
<input type="radio" name="measure" id="size"><label for="size">unpacked</label>
{packed}
{unpacked}
<p class="key">{key}</p>
</div><div class="beside">{beside}</div></div>
{below}
</body></html>
"""


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows)
    return f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>{head}</tr>\n{rows}</table></div>\n'


def write_page(found: Inspection, answers: Sequence[Answer], path: Path) -> None:
    """Write the page to ``path``, beside it first."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(page(found, answers))
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
