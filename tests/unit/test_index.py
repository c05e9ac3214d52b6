"""The static index of a directory: what the pages say, and what an update touches."""

from __future__ import annotations

import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from rocm_wheels.console import Console
from rocm_wheels.errors import BrokenArchive, UsageError
from rocm_wheels.publish import index as index_module
from rocm_wheels.publish import update_index, yank
from rocm_wheels.publish.index import update_channels
from tests.publish_wheels import make_wheel, sha256

CONSOLE = Console(quiet=True)


class _Anchors(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def anchors(page: Path) -> list[dict[str, str | None]]:
    return _Anchors(page.read_text()).found


def every_link_leads_to_its_bytes(directory: Path) -> None:
    for page in directory.glob("simple/*/index.html"):
        for anchor in anchors(page):
            href, _, digest = str(anchor["href"]).partition("#sha256=")
            assert sha256((page.parent / unquote(href)).resolve()) == digest


def test_a_page_links_every_wheel_with_its_hash_and_a_quoted_plus(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    (anchor,) = anchors(tmp_path / "simple/minitorch/index.html")
    assert anchor["href"] == f"../../minitorch-0.1%2Brocm5.7-py3-none-any.whl#sha256={sha256(wheel)}"
    every_link_leads_to_its_bytes(tmp_path)


def test_html_and_json_say_the_same(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    make_wheel(tmp_path, version="0.2+rocm5.7", requires_python=">=3.11,<4")
    update_index(tmp_path, console=CONSOLE)
    html = anchors(tmp_path / "simple/minitorch/index.html")
    page = json.loads((tmp_path / "simple/minitorch/index.json").read_text())
    assert page["meta"] == {"api-version": "1.1"} and page["versions"] == ["0.1+rocm5.7", "0.2+rocm5.7"]
    for anchor, entry in zip(html, page["files"], strict=True):
        assert anchor["href"] == f"{entry['url']}#sha256={entry['hashes']['sha256']}"
        assert anchor["data-requires-python"] == entry["requires-python"]
        assert anchor["data-core-metadata"] == f"sha256={entry['core-metadata']['sha256']}"
        assert entry["size"] == (tmp_path / entry["filename"]).stat().st_size


def test_the_requires_python_of_a_wheel_is_escaped(tmp_path: Path) -> None:
    make_wheel(tmp_path, requires_python=">=3.8,<4")
    update_index(tmp_path, console=CONSOLE)
    text = (tmp_path / "simple/minitorch/index.html").read_text()
    assert 'data-requires-python="&gt;=3.8,&lt;4"' in text


def test_the_metadata_file_is_the_one_of_the_wheel_and_hashed(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, requires=["numpy >=2"])
    update_index(tmp_path, console=CONSOLE)
    metadata = Path(f"{wheel}.metadata").read_bytes()
    assert b"Requires-Dist: numpy >=2" in metadata
    (anchor,) = anchors(tmp_path / "simple/minitorch/index.html")
    assert anchor["data-dist-info-metadata"] == f"sha256={hashlib.sha256(metadata).hexdigest()}"


def test_project_names_are_normalized(tmp_path: Path) -> None:
    make_wheel(tmp_path, name="Mini.Torch")
    update_index(tmp_path, console=CONSOLE)
    assert [a["href"] for a in anchors(tmp_path / "simple/index.html")] == ["mini-torch/"]


def test_a_yanked_wheel_says_so_on_both_pages(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    yank(tmp_path, wheel.name, 'wrong "arch" list', console=CONSOLE)
    assert anchors(tmp_path / "simple/minitorch/index.html")[0]["data-yanked"] == 'wrong "arch" list'
    page = json.loads((tmp_path / "simple/minitorch/index.json").read_text())
    assert page["files"][0]["yanked"] == 'wrong "arch" list'


def test_yanking_what_is_not_there_names_the_nearest_file(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    with pytest.raises(UsageError, match="did you mean minitorch"):
        yank(tmp_path, wheel.name.replace("0.1", "0.2"), "typo", console=CONSOLE)


def test_a_removed_wheel_leaves_the_pages(tmp_path: Path) -> None:
    wheel, other = make_wheel(tmp_path), make_wheel(tmp_path, name="other")
    update_index(tmp_path, console=CONSOLE)
    wheel.unlink()
    report = update_index(tmp_path, console=CONSOLE)
    assert report.removed == (wheel.name,) and report.total == 1
    assert not (tmp_path / "simple/minitorch").exists() and not Path(f"{wheel}.metadata").exists()
    assert [a["href"] for a in anchors(tmp_path / "simple/index.html")] == ["other/"]
    assert other.exists()


def test_an_update_without_changes_reads_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.suffix in (".html", ".json", ".metadata")}
    monkeypatch.setattr(index_module, "sha256_of", lambda *_: pytest.fail("hashed again"))
    report = update_index(tmp_path, console=CONSOLE)
    assert report.read == () and report.projects == ()
    assert before == {p: p.stat().st_mtime_ns for p in before}


def test_only_the_new_wheel_is_read_and_only_its_project_rewritten(tmp_path: Path) -> None:
    make_wheel(tmp_path, name="other")
    update_index(tmp_path, console=CONSOLE)
    wheel = make_wheel(tmp_path)
    report = update_index(tmp_path, console=CONSOLE)
    assert report.read == (wheel.name,) and report.projects == ("minitorch",)


def test_a_wheel_with_new_content_is_read_again(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    (tmp_path / "minitorch-0.1+rocm5.7-py3-none-any.whl").unlink()
    make_wheel(tmp_path, files={"minitorch/__init__.py": b"new = True\n"})
    update_index(tmp_path, console=CONSOLE)
    every_link_leads_to_its_bytes(tmp_path)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 99, "wheels": []}', '{"version": 1, "wheels": [{}]}'])
def test_a_damaged_state_file_costs_only_time(damage: str, tmp_path: Path) -> None:
    make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    page = (tmp_path / "simple/minitorch/index.html").read_bytes()
    (tmp_path / ".rocm-wheels-index.json").write_text(damage)
    assert update_index(tmp_path, console=CONSOLE).total == 1
    assert (tmp_path / "simple/minitorch/index.html").read_bytes() == page


def test_a_broken_wheel_is_refused_and_the_pages_stay(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    page = (tmp_path / "simple/index.html").read_bytes()
    (tmp_path / "bad-1-py3-none-any.whl").write_bytes(b"PK not really")
    with pytest.raises(BrokenArchive, match="bad-1"):
        update_index(tmp_path, console=CONSOLE)
    assert (tmp_path / "simple/index.html").read_bytes() == page


@pytest.mark.parametrize("count", range(1, 8))
def test_an_update_cut_at_any_write_leaves_true_links_and_the_next_one_finishes(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path, name="other")
    update_index(tmp_path, console=CONSOLE)
    make_wheel(tmp_path)
    real, written = index_module.write_file, list[Path]()

    def cut(path: Path, content: str | bytes) -> None:
        if len(written) == count:
            raise KeyboardInterrupt
        written.append(path)
        real(path, content)

    monkeypatch.setattr(index_module, "write_file", cut)
    with pytest.raises(KeyboardInterrupt):
        update_index(tmp_path, console=CONSOLE)
    every_link_leads_to_its_bytes(tmp_path)
    monkeypatch.setattr(index_module, "write_file", real)
    update_index(tmp_path, console=CONSOLE)
    assert [a["href"] for a in anchors(tmp_path / "simple/index.html")] == ["minitorch/", "other/"]
    assert not list(tmp_path.rglob("*.part"))


def test_the_same_wheels_give_the_same_pages(tmp_path: Path) -> None:
    pages = []
    for folder in ("one", "two"):
        make_wheel(tmp_path / folder, name="b")
        make_wheel(tmp_path / folder, name="a")
        update_index(tmp_path / folder, console=CONSOLE)
        pages.append({p.name: p.read_bytes() for p in (tmp_path / folder).rglob("*.html")})
    assert pages[0] == pages[1]


def test_the_page_for_people_names_one_index_gpus_and_size(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, tag="cp313-cp313-manylinux_2_36_x86_64")
    wheel.with_suffix(".manifest.json").write_text('{"archs": ["gfx1100", "gfx1030"]}')
    update_index(tmp_path, console=CONSOLE)
    text = unescape((tmp_path / "projects/minitorch.html").read_text())
    assert "pip install --index-url INDEX minitorch==0.1+rocm5.7" in text
    assert "extra-index-url" not in text
    assert "gfx1030, gfx1100" in text and "<td>5.7</td>" in text and "<td>3.13 (>=3.8)</td>" in text
    assert "manylinux_2_36_x86_64: glibc 2.36 or newer" in text
    assert not re.search(r'(src|href)="https?://', text), "the page must need nothing from elsewhere"


def test_gpus_are_unknown_without_manifest_or_device_code(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    update_index(tmp_path, console=CONSOLE)
    assert "<td>unknown</td>" in (tmp_path / "projects/minitorch.html").read_text()


def test_channels_are_indexes_of_their_own_with_one_front_page(tmp_path: Path) -> None:
    make_wheel(tmp_path / "rocm5.7", version="1+rocm5.7")
    make_wheel(tmp_path / "rocm6.4/gfx110x", version="1+rocm6.4")
    reports = update_channels(tmp_path, console=CONSOLE)
    assert {name: report.total for name, report in reports.items()} == {"rocm5.7": 1, "rocm6.4/gfx110x": 1}
    assert [a["href"] for a in anchors(tmp_path / "index.html")] == ["rocm5.7/", "rocm6.4/gfx110x/"]
    assert len(anchors(tmp_path / "rocm5.7/simple/minitorch/index.html")) == 1
    with pytest.raises(UsageError, match="no directory with wheels"):
        update_channels(tmp_path / "rocm5.7", console=CONSOLE)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        update_index(tmp_path / "nowhere", console=CONSOLE)


def test_a_wheel_of_data_serves_what_its_files_are_for(tmp_path: Path) -> None:
    data = {"_rocm_layers_libraries/lib/rocblas/library/TensileLibrary_gfx1030.co": b"data"}
    make_wheel(tmp_path, "rocm-layers-device-gfx1030", "5.7+b1", files=data)
    update_index(tmp_path, console=CONSOLE)
    page = (tmp_path / "projects/rocm-layers-device-gfx1030.html").read_text()
    assert "<td>5.7</td><td>gfx1030</td>" in page
