"""The HTML page: as text, and in headless Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dml.results.figures import draw_figures
from dml.results.report_files import render_page
from tests.results.made_runs import build, write_history, write_run

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs the system's package chromium")
POLICY = re.compile(r"<meta http-equiv=.Content-Security-Policy[^>]*>")
VOID = {"meta", "link", "img", "source", "br", "input"}


class Outline(HTMLParser):
    """Checks that tags nest, and collects what a reader of the page depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict] = []
        self.heads: list[dict] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(values)
        if tag == "th":
            self.heads.append(values)
        if "id" in values:
            self.ids.append(values["id"])
        self.addresses += [values[k] for k in ("src", "srcset", "href", "data") if k in values]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parse_page(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_page_is_valid_and_accessible(report):
    text = render_page([report, report], {report.id: draw_figures(report)}, datetime(2026, 1, 2))
    found = parse_page(text)
    assert found.images
    assert all(image["alt"].strip() for image in found.images)
    assert all("scope" in head for head in found.heads)
    assert all(address.startswith(("data:", "#")) for address in found.addresses)
    assert {a[1:] for a in found.addresses if a.startswith("#")} <= set(found.ids)
    assert "<&>" not in text
    assert "loss=contrastive &lt;&amp;&gt;" in text
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text


def open_page(path: Path, width: int) -> tuple[str, list[str]]:
    """The page's source after rendering, and the messages on the console."""
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update"),
        "--host-resolver-rules=MAP * ~NOTFOUND",  # offline
        *("--enable-logging=stderr", f"--user-data-dir={path.parent / 'profile'}"),
        *(f"--window-size={width},900", "--dump-dom", path.as_uri()),
    ]
    done = subprocess.run([str(BROWSER), *options], capture_output=True, text=True, timeout=120)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line]


@pytest.fixture
def page_path(cells, tmp_path) -> Path:
    some = cells("mfcwms", "arcface", "ms", "contrastive")
    for number, cell in enumerate(some[:3]):
        values = [0.22 + number / 100, 0.221, 0.224]
        folder = write_run(tmp_path, cell.config, [[v] * 4 for v in values], values)
        write_history(folder, {(r, f): [0.1, 0.2] for r in range(3) for f in range(4)})
    report = build(some, tmp_path)
    figures = {report.id: draw_figures(report)}
    path = tmp_path / "report.html"
    path.write_text(render_page([report, report], figures, datetime(2026, 1, 2)))
    return path


@needs_browser
def test_page_opens_offline_with_an_empty_console(page_path):
    source, console = open_page(page_path, 1280)
    assert "mf_cwms" in source
    assert console == []
    # The page's policy forbids network access and reports it: the check above can fail.
    text = page_path.read_text()
    assert POLICY.search(text)
    page_path.write_text(
        text.replace("</main>", '<img src="https://example.org/x.png" alt=""></main>')
    )
    _, console = open_page(page_path, 1280)
    assert any("Content Security Policy" in line for line in console)
