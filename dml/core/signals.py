"""Signals during work that has no state to save."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dml.core.errors import RunStopped


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raises KeyboardInterrupt at Ctrl-C and RunStopped at SIGTERM, at once.

    A training run only records signals and stops after a step, when its state is saved. Decoding a
    dataset takes many minutes and has no steps. Signals that the process ignores or leaves to the
    system stay as they are, and so do all signals outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in replaced:
            signal.signal(number, _raise)
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise RunStopped(f"stopped by {signal.Signals(number).name}", 128 + number, saved=False)
