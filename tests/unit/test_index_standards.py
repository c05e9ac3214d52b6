"""The pages as two parsers of other people read them: pypi-simple and mousebender."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from mousebender import simple
from pypi_simple import DistributionPackage, IndexPage, ProjectPage

from rocm_wheels.console import Console
from rocm_wheels.publish import update_index, yank
from tests.publish_wheels import make_wheel, sha256

CONSOLE = Console(quiet=True)
JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html"
BASE = "https://wheels.example/simple/mini-torch/"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    make_wheel(folder, "Mini_Torch", "0.1+rocm5.7", requires_python=">=3.8,<4")
    yanked = make_wheel(folder, "Mini_Torch", "0.2+rocm5.7")
    make_wheel(folder, "other", "1")
    update_index(folder, console=CONSOLE)
    yank(folder, yanked.name, 'aborts on "gfx1100" & <others>', console=CONSOLE)
    return folder


def page(index: Path, kind: str) -> str:
    return (index / "simple" / "mini-torch" / f"index.{kind}").read_text()


def test_pypi_simple_reads_the_same_from_html_and_json(index: Path) -> None:
    html = ProjectPage.from_html("mini-torch", page(index, "html"), base_url=BASE)
    data = ProjectPage.from_json_data(json.loads(page(index, "json")), base_url=BASE)
    assert html.repository_version == data.repository_version == "1.1"
    assert [facts(p) for p in html.packages] == [facts(p) for p in data.packages]
    assert data.versions == ["0.1+rocm5.7", "0.2+rocm5.7"]


def facts(package: DistributionPackage) -> dict[str, Any]:
    names = ("filename", "url", "version", "digests", "requires_python", "is_yanked", "yanked_reason")
    return {name: getattr(package, name) for name in (*names, "has_metadata", "metadata_digests")}


def test_every_fact_is_that_of_the_wheel(index: Path) -> None:
    first, second = ProjectPage.from_json_data(json.loads(page(index, "json")), base_url=BASE).packages
    wheel = index / first.filename
    assert first.url == f"https://wheels.example/{first.filename.replace('+', '%2B')}"
    assert (first.digests, first.size) == ({"sha256": sha256(wheel)}, wheel.stat().st_size)
    metadata = index / f"{first.filename}.metadata"
    assert first.has_metadata and first.metadata_url == f"{first.url}.metadata"
    assert first.metadata_digests == {"sha256": hashlib.sha256(metadata.read_bytes()).hexdigest()}
    assert (first.requires_python, first.is_yanked) == (">=3.8,<4", False)
    assert (second.is_yanked, second.yanked_reason) == (True, 'aborts on "gfx1100" & <others>')


def test_mousebender_reads_the_same_from_html_and_json(index: Path) -> None:
    html = simple.parse_project_details(page(index, "html"), HTML, "mini-torch")
    data = simple.parse_project_details(page(index, "json"), JSON, "mini-torch")
    assert html["name"] == data["name"] == "mini-torch"
    for one, other in zip(html["files"], data["files"], strict=True):
        for key in ("filename", "url", "hashes", "yanked"):
            assert one.get(key, False) == other.get(key, False)
        assert one.get("requires-python", "") == other.get("requires-python", "")
        assert {**one}["core-metadata"] == {**other}["core-metadata"]


def test_both_read_the_list_of_projects(index: Path) -> None:
    html, data = ((index / "simple" / f"index.{kind}").read_text() for kind in ("html", "json"))
    assert IndexPage.from_html(html).projects == ["mini-torch", "other"]
    assert IndexPage.from_json_data(json.loads(data)).projects == ["mini-torch", "other"]
    for text, kind in ((html, HTML), (data, JSON)):
        found = simple.parse_project_index(text, kind)
        assert [p["name"] for p in found["projects"]] == ["mini-torch", "other"]
