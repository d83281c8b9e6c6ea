"""Progress of long work: one live line on a terminal, elsewhere a plain line a minute.

Work inside other work (an evaluation inside a training) adds its part to the same line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from rich.console import Console
from rich.live import Live
from rich.text import Text

T = TypeVar("T")

PLAIN_SECONDS = 60.0  # between two lines where there is no terminal
REFRESHES = 4  # of a live line per second
GAP = "  "


class Part(NamedTuple):
    """A piece of a line.

    Attributes:
        text: such as `loss 0.4312`.
        weight: importance; where the line is too long, parts of the smallest weight are left out.
    """

    text: str
    weight: int = 50


Status = Callable[[], Sequence[Part]]


def fit_parts(parts: Iterable[Part], width: int) -> str:
    """Joins parts to a line of at most `width` columns, without the least important ones."""
    kept = [part for part in parts if part.text]
    while len(kept) > 1 and len(GAP.join(part.text for part in kept)) > width:
        kept.remove(min(reversed(kept), key=lambda part: part.weight))
    return GAP.join(part.text for part in kept)[:width]


def format_seconds(seconds: float) -> str:
    """Formats a duration: `0:07`, `12:34`, `3:25:45`."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_epoch(epoch: float) -> str:
    """Returns `3`, or `0.61` where evaluations are counted in steps."""
    return f"{round(epoch, 2):g}"


class Display:
    """The line of a command about the work in progress; see `open_display`.

    Args:
        console: the terminal or file to write to.
        interval: seconds between plain lines.
    """

    def __init__(self, console: Console, interval: float = PLAIN_SECONDS) -> None:
        self.console, self.interval = console, interval
        self.statuses: list[Status] = []
        self._streams = sys.stdout, sys.stderr
        self._live: Live | None = None
        self._closed = threading.Event()
        self._printed = time.monotonic()

    @property
    def is_live(self) -> bool:
        """True on a terminal that can rewrite a line."""
        console = self.console
        return console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter

    def start(self) -> None:
        """Starts to show the statuses; does nothing on a quiet console."""
        if self.console.quiet:
            return
        if self.is_live:
            self._live = Live(
                get_renderable=self._render,
                console=self.console,
                refresh_per_second=REFRESHES,
                transient=True,
            )
            self._live.start()
        else:
            threading.Thread(target=self._print_lines, name="progress", daemon=True).start()

    def stop(self) -> None:
        """Removes the live line."""
        self._closed.set()
        if self._live is not None:
            self._live.stop()

    def postpone(self) -> None:
        """Starts the interval anew; called when another line was printed."""
        self._printed = time.monotonic()

    def restore_streams(self) -> None:
        """Gives stdout and stderr back, in a forked child that has no thread of the live line."""
        if self._live is not None:
            sys.stdout, sys.stderr = self._streams

    def _parts(self) -> list[Part]:
        return [part for status in list(self.statuses) for part in status()]

    def _render(self) -> Text:
        # The last column stays free: some terminals break the line there.
        return Text(fit_parts(self._parts(), self.console.width - 1), no_wrap=True)

    def _print_lines(self) -> None:
        while not self._closed.wait(max(0.01, self._printed + self.interval - time.monotonic())):
            if time.monotonic() < self._printed + self.interval:
                continue  # postponed
            self.postpone()
            if line := GAP.join(part.text for part in self._parts() if part.text):
                self.console.print(line, markup=False, emoji=False)


_active: Display | None = None


@contextmanager
def open_display(console: Console | None = None) -> Iterator[Display]:
    """Shows progress on a console (default: stderr) while the context is open.

    Inside another display this is that one, so that a command has a single line.
    """
    global _active
    if _active is not None:
        yield _active
        return
    _active = Display(Console(stderr=True) if console is None else console)
    try:
        _active.start()
        yield _active
    finally:
        display, _active = _active, None
        display.stop()


@contextmanager
def show_status(status: Status) -> Iterator[None]:
    """Adds what `status()` returns to the line; another thread calls it."""
    with open_display() as display:
        depth = len(display.statuses)
        display.statuses.append(status)
        try:
            yield
        finally:
            del display.statuses[depth:]


@contextmanager
def show_phase(text: str) -> Iterator[None]:
    """Adds a text to the line, such as `drawing the figures`."""
    with show_status(lambda: [Part(text, 90)]):
        yield


def show_progress(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Yields `items`, and shows how many of them are done and the time left.

    Args:
        items: any iterable.
        title: such as `decoding images`.
        total: number of items; None: unknown.
    """
    done, started = 0, time.monotonic()

    def status() -> list[Part]:
        count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        parts = [Part(f"{title} {count}", 90)]
        if total and done:
            left = (time.monotonic() - started) * (total - done) / done
            parts.append(Part(f"{format_seconds(left)} left", 45))
        return parts

    with show_status(status):
        for item in items:
            yield item
            done += 1


@contextmanager
def show_transfer(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Shows transferred megabytes; yields a function `report(done, total)` of bytes."""
    done, total, started = 0, None, time.monotonic()

    def status() -> list[Part]:
        of = f" of {total / 1e6:,.1f}" if total else ""
        rate = done / 1e6 / max(time.monotonic() - started, 1e-3)
        return [Part(title, 90), Part(f"{done / 1e6:,.1f}{of} MB", 80), Part(f"{rate:.1f} MB/s")]

    def report(now_done: int, now_total: int | None) -> None:
        nonlocal done, total
        done, total = now_done, now_total

    with show_status(status):
        yield report


def postpone_line() -> None:
    """Starts the minute until the next plain line anew; called after printing another line."""
    if _active is not None:
        _active.postpone()


def _after_fork() -> None:
    """Lets a forked child, such as a loader worker, write to its streams directly."""
    global _active
    if _active is not None:
        _active.restore_streams()
        _active = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
