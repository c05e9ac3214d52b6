"""The page of inspect in a real browser: what is drawn, and that nothing goes wrong while drawing."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rocm_wheels.build.setup import ensure_packages
from rocm_wheels.console import Console
from rocm_wheels.errors import PackagesMissing
from rocm_wheels.inspect import answer, inspect_wheel
from rocm_wheels.inspect.page import page
from tests.inspect_wheels import BLAS_DATA, demo_wheel, device_library

pytestmark = pytest.mark.integration

# The test puts this into a copy of the page: what the browser made of it goes into the document that --dump-dom prints.
_PROBE = """
<script>
const errors = [];
addEventListener("error", e => errors.push(String(e.message)));
addEventListener("securitypolicyviolation", e => errors.push(e.violatedDirective));
addEventListener("load", () => {
  const area = r => r.width * r.height;
  const report = {};
  for (const measure of ["packed", "size"]) {
    document.getElementById(measure).checked = true;
    const svg = document.querySelector("svg." + measure);
    const place = svg.getBoundingClientRect();
    const drawn = [...svg.querySelectorAll("rect")].map(r => r.getBoundingClientRect());
    const texts = [...svg.querySelectorAll("text")].map(t => ({text: t.textContent, box: t.getBoundingClientRect()}));
    report[measure] = {
      space: area(place), covered: drawn.reduce((sum, r) => sum + area(r), 0), boxes: drawn.length,
      outside: texts.filter(t => t.box.right > place.right + 1 || t.box.bottom > place.bottom + 1).length,
      overlong: texts.filter(t => !drawn.some(r => t.box.left >= r.left - 1 && t.box.right <= r.right + 1
        && t.box.top >= r.top - 2 && t.box.bottom <= r.bottom + 2)).map(t => t.text),
      labels: texts.map(t => t.text), height: Math.min(...texts.map(t => t.box.height)),
    };
  }
  report.titles = [...document.querySelectorAll("svg title")].map(t => t.textContent);
  report.tables = document.querySelectorAll("table").length;
  report.wide = document.documentElement.scrollWidth > innerWidth;
  report.errors = errors;
  const out = document.createElement("pre");
  out.id = "report";
  out.textContent = JSON.stringify(report);
  document.body.append(out);
});
</script>
"""


NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def browser() -> str:
    """A Chromium, installed where that can be done."""
    if not any(map(shutil.which, NAMES)):
        try:
            ensure_packages("browser", Console())
        except PackagesMissing as error:
            pytest.skip(str(error))
    return next(filter(None, map(shutil.which, NAMES)))


def report_of(text: str, folder: Path) -> dict[str, Any]:
    """The page ``text`` loaded with the probe in it; its policy is loosened for that script alone."""
    program = browser()
    probed = text.replace("style-src", "script-src 'unsafe-inline'; style-src", 1).replace(
        "<title>", _PROBE + "<title>", 1
    )
    path = folder / "probed.html"
    path.write_text(probed, "utf-8")
    words = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    words += ["--window-size=1400,1000", "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    match = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    report: dict[str, Any] = json.loads(html.unescape(match[1]))
    return report


@pytest.fixture
def text(tmp_path: Path) -> str:
    libraries = {
        "libbig.so": device_library(tmp_path, "libbig.so", ["gfx1030", "gfx1100", "gfx90a:xnack-"], payload=400_000),
        "libsmall.so": device_library(tmp_path, "libsmall.so", ["gfx1030", "gfx1100"], ["gfx1030"]),
    }
    data = {BLAS_DATA.format(gfx): bytes(range(256)) * 400 for gfx in ("gfx1030", "gfx1100")}
    found = inspect_wheel(demo_wheel(tmp_path, libraries, data=data))
    return page(found, tuple(answer(found, gfx) for gfx in ("gfx1032", "gfx90a")))


def test_boxes_cover_the_picture_and_texts_lie_in_them(text: str, tmp_path: Path) -> None:
    report = report_of(text, tmp_path)
    assert report["errors"] == []
    for measure in ("packed", "size"):
        drawn = report[measure]
        assert drawn["space"] > 200_000
        assert drawn["covered"] == pytest.approx(drawn["space"], rel=0.02)
        assert (drawn["outside"], drawn["overlong"]) == (0, [])
        assert drawn["height"] >= 9
        assert {"libbig.so", "gfx1030", "gfx1100"} <= set(drawn["labels"])
    assert any(title.startswith("libbig.so: gfx1030 (Radeon RX 6800") for title in report["titles"])
    assert report["tables"] >= 6
    assert not report["wide"]


def test_the_probe_sees_errors(text: str, tmp_path: Path) -> None:
    broken = text.replace("</body>", "<script>undefined_function()</script><img src='x.png'></body>")
    assert len(report_of(broken, tmp_path)["errors"]) >= 2
