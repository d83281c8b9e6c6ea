"""Progress bars on the terminal; silent where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
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
)
from rich.progress import track as rich_track

T = TypeVar("T")


def tracked(items: Iterable[T], title: str, total: int) -> Iterator[T]:
    """Passes `items` on, with a bar on stderr."""
    console = Console(stderr=True)
    yield from rich_track(
        items, title, total=total, console=console, disable=not sys.stderr.isatty(), transient=True
    )


@contextmanager
def transfer(title: str) -> Iterator[Progress]:
    """A bar for bytes on their way, with speed and remaining time."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        progress.add_task(title, total=None)
        yield progress
