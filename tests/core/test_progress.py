import io
import os
import sys
import time

import pytest
from rich.console import Console

from dml.core import progress
from dml.core.progress import (
    Part,
    fit_parts,
    format_seconds,
    open_display,
    show_phase,
    show_progress,
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


def test_parts_of_the_smallest_weight_are_left_out():
    parts = [Part("epoch 1", 9), Part("lr 0.1", 1), Part("", 10), Part("loss 0.5", 5)]
    assert fit_parts(parts, 100) == "epoch 1  lr 0.1  loss 0.5"
    assert fit_parts(parts, 20) == "epoch 1  loss 0.5"
    assert fit_parts(parts, 16) == "epoch 1"
    assert fit_parts(parts, 3) == "epo"
    assert fit_parts([], 3) == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0:00"), (7.4, "0:07"), (754, "12:34"), (12345, "3:25:45")]
)
def test_durations(seconds, text):
    assert format_seconds(seconds) == text


def test_work_inside_other_work_is_in_the_same_line(shown):
    with open_display(shown.console), show_phase("epoch 3"):
        items = show_progress("abc", "embedding batch", 3)
        assert next(items) == "a"
        assert next(items) == "b"
        wait_for(lambda: any("embedding batch 1 of 3" in line for line in shown()))
        assert list(items) == ["c"]
        count = len(shown())
        wait_for(lambda: len(shown()) > count)
    assert shown()[-1] == "epoch 3"
    assert any(line.startswith("epoch 3  embedding batch 1 of 3") for line in shown())


def test_a_printed_line_postpones_the_next_one():
    console = Console(file=io.StringIO())
    with open_display(console) as display, show_phase("working"):
        display.interval = 0.3
        for _ in range(40):
            time.sleep(0.01)
            progress.postpone_line()
    assert console.file.getvalue() == ""


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


def test_a_status_ends_with_its_work_even_if_that_fails(shown):
    with open_display(shown.console) as display, show_phase("outside"):
        with pytest.raises(KeyError), show_phase("inside"):
            raise KeyError
        assert len(display.statuses) == 1
    assert progress._active is None


def test_bytes(shown):
    with open_display(shown.console), show_transfer("weights.pth") as report:
        report(1_500_000, 3_000_000)
        wait_for(lambda: any("weights.pth  1.5 of 3.0 MB" in line for line in shown()))


def test_a_forked_process_writes_to_its_own_streams():
    console = Console(file=io.StringIO(), force_terminal=True)
    before = sys.stdout
    with open_display(console):
        assert sys.stdout is not before
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write, b"own" if sys.stdout is before else b"shared")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 10) == b"own"
