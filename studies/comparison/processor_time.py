"""Processor time of training runs, with that of processes which were stopped before the end."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dml.core.atomic_io import read_json, write_json

PERIOD = 30.0  # seconds of work that a killed process may leave uncounted


class ProcessorTime:
    """Processor time of the training runs of a search, in a file, for each number of epochs.

    Args:
        file: JSON; another process may have begun it, but none writes it at the same time.

    Raises:
        UserError: the file is damaged.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = read_json(file) or {}

    def seconds(self, epochs: int) -> float:
        """Returns the processor time in seconds of the training runs of `epochs` so far."""
        return self._seconds.get(str(epochs), 0.0)

    @contextmanager
    def measure(self, epochs: int, period: float = PERIOD) -> Iterator[None]:
        """Adds the time of what it encloses, and writes the file every `period` seconds."""
        earlier = self.seconds(epochs)
        begun = _used_seconds()
        is_over = threading.Event()

        def write() -> None:
            self._seconds[str(epochs)] = earlier + _used_seconds() - begun
            write_json(self._file, self._seconds)

        def write_regularly() -> None:
            while not is_over.wait(period):
                write()

        self._file.parent.mkdir(parents=True, exist_ok=True)
        writer = threading.Thread(target=write_regularly, name="processor time", daemon=True)
        writer.start()
        try:
            yield
        finally:
            is_over.set()
            writer.join()
            write()


def _used_seconds() -> float:
    """Returns the processor time of this process and of those that it has waited for."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total
