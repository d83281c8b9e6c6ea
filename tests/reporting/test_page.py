"""The page in headless Chromium: silent console, no network, nothing wider than a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from dml.reporting.page import figures, page
from dml.reporting.report import build
from tests.reporting.made_runs import write_history, write_run

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs the system's package chromium")
POLICY = re.compile(r"<meta http-equiv=.Content-Security-Policy[^>]*>")


def opened(path: Path, width: int) -> tuple[str, list[str]]:
    """The page's source after it was rendered, and what went to the console."""
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
def made(cells, tmp_path) -> Path:
    some = cells("mfcwms", "arcface", "ms", "contrastive")
    for number, cell in enumerate(some[:3]):
        values = [0.22 + number / 100, 0.221, 0.224]
        folder = write_run(tmp_path, cell.config, [[v] * 4 for v in values], values)
        write_history(folder, {(r, f): [0.1, 0.2] for r in range(3) for f in range(4)})
    found = build("mft_table1", some, tmp_path, OmegaConf.to_container(some[0].config.experiment))
    path = tmp_path / "report.html"
    path.write_text(page([found, found], {found.id: figures(found)}, datetime(2026, 1, 2)))
    return path


@needs_browser
def test_page_opens_offline_without_a_word(made):
    source, console = opened(made, 1280)
    assert "mf_cwms" in source
    assert console == []
    # The page forbids itself all network, and says so on the console: the check above can fail.
    text = made.read_text()
    assert POLICY.search(text)
    made.write_text(text.replace("</main>", '<img src="https://example.org/x.png" alt=""></main>'))
    _, console = opened(made, 1280)
    assert any("Content Security Policy" in line for line in console)


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(made, width):
    # In a frame: windows have a least width, frames have none.
    tell = "<script>parent.postMessage(document.documentElement.scrollWidth, '*')</script></body>"
    made.write_text(POLICY.sub("", made.read_text()).replace("</body>", tell))
    frame = made.with_name("frame.html")
    frame.write_text(
        "<script>onmessage = event => { document.title = event.data + ' px' }</script>"
        f'<iframe src="{made.name}" style="width: {width}px; height: 900px; border: 0"></iframe>'
    )
    source, _ = opened(frame, 1400)
    found = re.search(r"<title>(\d+) px", source)
    assert found
    assert int(found[1]) <= width
