import io
import time

import pytest
from rich.console import Console

from dml.core import progress
from dml.core.progress import (
    Part,
    format_seconds,
    open_display,
    show_status,
    show_transfer,
)


@pytest.fixture
def shown(monkeypatch):
    """Plain lines that a display prints, as often as it can."""
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=200, soft_wrap=True)
    monkeypatch.setattr(progress.Display, "__init__", _with_short_interval)

    def lines():
        return console.file.getvalue().splitlines()

    lines.console = console
    return lines


def _with_short_interval(self, console, interval=0.02, init=progress.Display.__init__):
    init(self, console, interval)


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00"), (7.4, "0:07"), (754, "12:34"), (12345, "3:25:45")]
)
def test_durations(seconds, text):
    assert format_seconds(seconds) == text


def test_without_work_there_is_no_line(shown):
    with open_display(shown.console):
        time.sleep(0.1)
    assert shown() == []


def test_a_terminal_has_one_line_that_fits_and_disappears():
    console = Console(file=io.StringIO(), force_terminal=True, width=30, legacy_windows=False)
    with open_display(console), show_status(lambda: [Part("x" * 20, 9), Part("z" * 20, 1)]):
        wait_for(lambda: "x" * 20 in console.file.getvalue())
        console.print("stays")
    text = console.file.getvalue()
    assert "z" not in text
    lines, end = text.rsplit("stays", 1)
    assert "\x1b[1A" not in lines  # the cursor never moves up: there is one line
    assert end.endswith("\x1b[2K")  # which is erased at the end


def test_bytes(shown):
    with open_display(shown.console), show_transfer("weights.pth") as report:
        report(1_500_000, 3_000_000)
        wait_for(lambda: any("weights.pth  1.5 of 3.0 MB" in line for line in shown()))
