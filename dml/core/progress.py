"""Progress bars on stderr; none where stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
    track,
)

T = TypeVar("T")


def show_progress(items: Iterable[T], title: str, total: int) -> Iterator[T]:
    """Yields `items`, with a progress bar of their number."""
    yield from track(items, title, total=total, console=_stderr(), disable=_is_hidden())


@contextmanager
def show_transfer(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Shows a progress bar of bytes; yields a function `report(done, total)` that moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_stderr(), disable=_is_hidden()) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _stderr() -> Console:
    return Console(stderr=True)


def _is_hidden() -> bool:
    return not sys.stderr.isatty()
