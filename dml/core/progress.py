"""Progress of long work: one live line on a terminal, drawn by rich; a line a minute in a log.

Work inside other work (an evaluation inside a training run) adds its part to the same line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

from rich.console import Console, RenderableType
from rich.file_proxy import FileProxy
from rich.progress import Progress
from rich.text import Text

from dml.core.plain_console import PlainConsole

T = TypeVar("T")

SPEED_SECONDS = 600  # window of the average speed behind the time left, evaluations included
REFRESHES = 4  # per second
LOG_SECONDS = 60  # between two lines in a log
LARGE = 1e4  # losses from here on are shown without decimals


class _Line(Progress):
    """All tasks on one line, the outermost first."""

    def get_renderables(self) -> Iterable[RenderableType]:
        parts = []
        for task in self.tasks:
            parts.append(task.description)
            if task.total:
                parts.append(f"{task.percentage:.0f} %")
            if task.time_remaining:
                parts.append(f"{format_seconds(task.time_remaining)} left")
        yield Text("  ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")


_line: Progress | None = None


@contextmanager
def open_display(console: Console | None = None) -> Iterator[Progress]:
    """Shows progress on a console (default: stderr) while the context is open.

    Inside an open display this yields the same display: a command has a single line.
    """
    global _line
    if _line is not None:
        yield _line
        return
    console = PlainConsole(stderr=True) if console is None else console
    live = console.is_terminal and not console.is_dumb_terminal and not console.quiet
    try:
        with _Line(
            console=console,
            refresh_per_second=REFRESHES,
            speed_estimate_period=SPEED_SECONDS,
            transient=True,
            disable=not live,
        ) as _line:
            yield _line
    finally:
        _line = None


@contextmanager
def show_task(text: str, total: float | None = None) -> Iterator[Callable[..., None]]:
    """Adds a task to the line; yields `rich.progress.Progress.update` of this task.

    Args:
        text: description, such as `drawing the figures`; `update(description=…)` changes it.
        total: amount of work; `update(completed=…)` reports the finished part.
    """
    with open_display() as line:
        task = line.add_task(text, total=total)
        try:
            yield partial(line.update, task)
        finally:
            line.remove_task(task)


def show_progress(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Yields `items`, and shows the finished share and the time left.

    In a log, which is no terminal, a line each minute says how many are finished.
    """
    with log_lines() as log_line, show_task(title, total) as update:
        for number, item in enumerate(items, start=1):
            yield item
            update(advance=1)
            log_line(partial(_describe_position, title, number, total))


@contextmanager
def log_lines() -> Iterator[Callable[[Callable[[], str]], None]]:
    """Yields a function that prints what it is told in a log, at most once a minute.

    It takes a function that returns the text. On a terminal it prints nothing.
    """
    with open_display() as line:
        last = time.monotonic()

        def print_line(describe: Callable[[], str]) -> None:
            nonlocal last
            if line.disable and time.monotonic() - last >= LOG_SECONDS:
                last = time.monotonic()
                line.console.print(describe(), highlight=False)

        yield print_line


def _describe_position(title: str, number: int, total: int | None) -> str:
    """Returns `embedding batch: 120 of 4,000, 3 %`."""
    if not total:
        return f"{title}: {number:,}"
    return f"{title}: {number:,} of {total:,}, {100 * number / total:.0f} %"


def format_seconds(seconds: float) -> str:
    """Formats a duration: `0:00:07`, `3:25:45`."""
    return str(timedelta(seconds=round(seconds)))


def format_epoch(epoch: float) -> str:
    """Formats an epoch: `3`, or `0.61` if evaluations are counted in steps."""
    return f"{round(epoch, 2):g}"


def format_loss(loss: float, constant: float = 0.0) -> str:
    """Returns `loss 0.4312`, or with a constant `loss 69.2726 (69.3147 - 0.0421)`."""
    text = f"loss {loss:.4f}" if abs(loss) < LARGE else f"loss {loss:.4g}"
    if not constant:
        return text
    rest = loss - constant
    sign = "-" if rest < 0 else "+"
    return f"{text} ({constant:.4f} {sign} {abs(rest):.4f})"


def _leave_line() -> None:
    """Restores stdout and stderr in a forked child, such as a loading process."""
    global _line
    _line = None
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, FileProxy):
            setattr(sys, name, stream.rich_proxied_file)


os.register_at_fork(after_in_child=_leave_line)
