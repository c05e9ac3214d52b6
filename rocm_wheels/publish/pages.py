"""The text of index pages: PEP 503 (HTML), PEP 691 (JSON), and one page per project for people.

Written from the Simple Repository API of the packaging specifications, version 1.1: hashes as URL fragment,
``data-core-metadata`` and its older name ``data-dist-info-metadata`` (PEP 714), ``data-yanked`` (PEP 592), sizes and
versions in JSON (PEP 700).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from packaging.tags import parse_tag
from packaging.utils import NormalizedName
from packaging.version import Version

from rocm_wheels.layers.model import PREFIX as BASE_PREFIX

_API = "1.1"
_UP = "../../"
_EVIDENCE = {"manifest": "manifest", "dsse": "signature"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}"
    "pre{background:#f4f4f4;padding:.8em;overflow:auto}.yanked{text-decoration:line-through}"
)


@dataclass(frozen=True)
class IndexedWheel:
    """What the pages say of one wheel; ``stamp`` (size, mtime, inode) tells whether it must be read again."""

    filename: str
    project: NormalizedName
    version: str
    sha256: str
    metadata_sha256: str
    requires_python: str
    archs: tuple[str, ...]
    stamp: tuple[int, int, int]
    yanked: str | None = None
    evidence: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the wheel."""
        return self.stamp[0]

    @property
    def rocm(self) -> str:
        """The ROCm release that the version names, such as ``5.7`` for ``2.6.0+rocm5.7``; "" when it names none."""
        version = Version(self.version)
        if self.project.startswith(BASE_PREFIX):
            return version.public
        found = re.search(r"rocm(\d+(?:\.\d+)*)", version.local or "")
        return found[1] if found else ""


def project_html(project: str, wheels: Iterable[IndexedWheel]) -> str:
    """The PEP 503 page of a project."""
    anchors = "\n".join(_anchor(wheel) for wheel in wheels)
    title = f"Links for {escape(project)}"
    return _simple_document(title, f"<h1>{title}</h1>\n{anchors}")


def project_json(project: str, wheels: Sequence[IndexedWheel]) -> str:
    """The PEP 691 page of a project."""
    page = {
        "meta": {"api-version": _API},
        "name": project,
        "versions": list(dict.fromkeys(wheel.version for wheel in wheels)),
        "files": [_json_file(wheel) for wheel in wheels],
    }
    return json.dumps(page, separators=(",", ":")) + "\n"


def root_html(projects: Iterable[str]) -> str:
    """The PEP 503 list of projects."""
    anchors = "\n".join(f'<a href="{quote(p)}/">{escape(p)}</a><br>' for p in sorted(projects))
    return _simple_document("Simple index", anchors)


def root_json(projects: Iterable[str]) -> str:
    """The PEP 691 list of projects."""
    page = {"meta": {"api-version": _API}, "projects": [{"name": p} for p in sorted(projects)]}
    return json.dumps(page, separators=(",", ":")) + "\n"


def project_files(project: str, wheels: Iterable[IndexedWheel], simple: str) -> dict[str, str]:
    """The pages of one project by their path, in the order in which they are to be written."""
    ordered = sorted(wheels, key=lambda wheel: (Version(wheel.version), wheel.filename))
    return {
        f"{simple}/{project}/index.html": project_html(project, ordered),
        f"{simple}/{project}/index.json": project_json(project, ordered),
        f"projects/{project}.html": human_project(project, ordered),
    }


def root_files(sizes: Mapping[str, Sequence[int]], simple: str) -> dict[str, str]:
    """The pages that list all projects, from the sizes of their wheels, by path."""
    return {
        f"{simple}/index.html": root_html(sizes),
        f"{simple}/index.json": root_json(sizes),
        "index.html": human_root(sizes),
    }


def human_root(projects: Mapping[str, Sequence[int]]) -> str:
    """The front page: every project with the number and the size of its wheels."""
    rows = "\n".join(
        f'<tr><td><a href="projects/{quote(name)}.html">{escape(name)}</a></td><td>{len(found)}</td>'
        f"<td>{human_size(sum(found))}</td></tr>"
        for name, found in sorted(projects.items())
    )
    table = f"<table>\n<tr><th>Project</th><th>Wheels</th><th>Size</th></tr>\n{rows}\n</table>"
    return _document("Wheels", f"<h1>Wheels</h1>\n{table}\n<p>For installers: <code>simple/</code></p>")


def human_project(project: str, wheels: Sequence[IndexedWheel]) -> str:
    """The page of one project: how to install it, and what each wheel is for.

    The command has exactly one index address. A second one would let a public package of the same name win.
    """
    newest = wheels[-1].version
    command = f"pip install --index-url INDEX {project}=={newest}"
    script = (
        "<script>document.querySelectorAll('pre').forEach(e=>e.textContent=e.textContent.replace("
        "'INDEX',new URL('../simple/',location.href).href))</script>"
    )
    columns = ("File", "Size", "ROCm", "GPUs", "Python", "Platform", "SHA-256", "Origin")
    head = "<tr>" + "".join(f"<th>{column}</th>" for column in columns) + "</tr>"
    rows = "\n".join(_human_row(wheel) for wheel in reversed(wheels))
    return _document(
        project,
        f"<h1>{escape(project)}</h1>\n<p>INDEX is the address of <code>simple/</code> on this server.</p>\n"
        f"<pre>{escape(command)}</pre>\n<table>\n{head}\n{rows}\n</table>\n{script}",
    )


def human_channels(channels: Mapping[str, Sequence[IndexedWheel]]) -> str:
    """The front page of a directory of indexes: every channel with its projects."""
    rows = "\n".join(
        f'<tr><td><a href="{quote(name)}/">{escape(name)}</a></td>'
        f"<td>{escape(', '.join(sorted({w.project for w in wheels})))}</td>"
        f"<td>{escape(', '.join(sorted({w.rocm for w in wheels if w.rocm})))}</td>"
        f"<td>{escape(', '.join(sorted({arch for w in wheels for arch in w.archs})))}</td></tr>"
        for name, wheels in sorted(channels.items())
    )
    head = "".join(f"<th>{column}</th>" for column in ("Channel", "Projects", "ROCm", "GPUs"))
    return _document("Channels", f"<h1>Channels</h1>\n<table>\n<tr>{head}</tr>\n{rows}\n</table>")


def human_size(size: int) -> str:
    """Bytes for people, in the binary units that disks are counted in here."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def _anchor(wheel: IndexedWheel) -> str:
    metadata = f"sha256={wheel.metadata_sha256}"
    attributes = {
        "href": f"{_UP}{quote(wheel.filename)}#sha256={wheel.sha256}",
        "data-requires-python": wheel.requires_python,
        "data-core-metadata": metadata,
        "data-dist-info-metadata": metadata,
    }
    text = " ".join(f'{name}="{escape(value)}"' for name, value in attributes.items() if value)
    if wheel.yanked is not None:
        text += f' data-yanked="{escape(wheel.yanked)}"'
    return f"<a {text}>{escape(wheel.filename)}</a><br>"


def _json_file(wheel: IndexedWheel) -> dict[str, object]:
    metadata = {"sha256": wheel.metadata_sha256}
    entry: dict[str, object] = {
        "filename": wheel.filename,
        "url": f"{_UP}{quote(wheel.filename)}",
        "hashes": {"sha256": wheel.sha256},
        "size": wheel.size,
        "core-metadata": metadata,
        "dist-info-metadata": metadata,
    }
    if wheel.requires_python:
        entry["requires-python"] = wheel.requires_python
    if wheel.yanked is not None:
        entry["yanked"] = wheel.yanked or True
    return entry


def _human_row(wheel: IndexedWheel) -> str:
    tags = parse_tag(wheel.filename.removesuffix(".whl").split("-", wheel.filename.count("-") - 2)[-1])
    pythons = ", ".join(sorted({_python(tag.interpreter) for tag in tags}))
    platforms = ", ".join(sorted({_platform(tag.platform) for tag in tags}))
    yanked = f' class="yanked" title="yanked: {escape(wheel.yanked)}"' if wheel.yanked is not None else ""
    cells = (
        f'<a href="../{quote(wheel.filename)}"{yanked}>{escape(wheel.filename)}</a>',
        human_size(wheel.size),
        escape(wheel.rocm or "none named"),
        escape(", ".join(wheel.archs) or "unknown"),
        escape(f"{pythons} ({wheel.requires_python})" if wheel.requires_python else pythons),
        escape(platforms),
        f"<code>{wheel.sha256}</code>",
        " ".join(f'<a href="../{quote(n)}">{_EVIDENCE[n.rsplit(".", 2)[1]]}</a>' for n in wheel.evidence),
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _python(interpreter: str) -> str:
    """``3.13`` for cp313, ``any 3`` for py3."""
    kind, digits = interpreter[:2], interpreter[2:]
    if kind == "cp" and len(digits) > 1:
        return f"{digits[0]}.{digits[1:]}"
    return f"any {digits}" if kind == "py" else interpreter


def _platform(platform: str) -> str:
    """The platform tag with the C library that it promises to get along with."""
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", platform)
    return f"{platform}: glibc {found[1]}.{found[2]} or newer" if found else platform


def _simple_document(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="pypi:repository-version" content="{_API}">\n<title>{title}</title>\n</head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _document(title: str, body: str) -> str:
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
