"""Loading processes: they ignore the signals of the training process, and end with it."""

from __future__ import annotations

import atexit
import multiprocessing
import signal
import weakref
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

DEAD_WORKER = "DataLoader worker"  # torch's errors begin with this, without a specific class


def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yields the batches of a loader.

    Raises:
        RuntimeError: a worker died; the message begins with `DEAD_WORKER`.
    """
    others = set(multiprocessing.active_children())
    batches = iter(loader)
    _processes.update(set(multiprocessing.active_children()) - others)
    try:
        yield from batches
    except (ConnectionError, EOFError) as error:  # it died while it sent a batch
        raise RuntimeError(f"{DEAD_WORKER} exited before it sent its batch") from error


def prepare_process(worker: int) -> None:
    """Ignores Ctrl-C and SIGTERM in a worker: the training process finishes its step first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@atexit.register
def _end_processes() -> None:
    """Kills remaining workers: Python would send SIGTERM, which they ignore, and wait for them."""
    for process in _processes & set(multiprocessing.active_children()):
        process.kill()


_processes: weakref.WeakSet[multiprocessing.process.BaseProcess] = weakref.WeakSet()
