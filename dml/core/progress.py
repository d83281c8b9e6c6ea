"""Progress bars on the terminal; silent where nobody looks."""

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
    """Passes `items` on, with a bar on stderr."""
    yield from track(items, title, total=total, console=_stderr(), disable=_is_hidden())


@contextmanager
def show_transfer(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar for bytes on their way; yields a function to be told how many of how many are here."""
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
