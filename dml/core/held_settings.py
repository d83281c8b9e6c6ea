"""Settings of the process that several threads may need at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any


class HeldSetting:
    """A setting that is changed while any thread needs it.

    The first thread that needs it keeps what was set before, and the last one restores it: if each
    thread restored what it found, the last one would restore the change of another.

    Args:
        read: returns the present value.
        write: sets a value.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self._read, self._write = read, write
        self._lock = Lock()
        self._holders = 0
        self._before: Any = None

    @contextmanager
    def hold(self, value: Any) -> Iterator[None]:
        """Sets a value in the context."""
        with self._lock:
            if not self._holders:
                self._before = self._read()
            self._holders += 1
            self._write(value)
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._write(self._before)
