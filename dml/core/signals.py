"""Signals during work that has no state to save, or whose state is saved already."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dml.core.errors import RunStopped

# Signals that a training run has recorded and will answer after its step.
recorded_signals: list[int] = []


@contextmanager
def raise_on_signals(saved: bool = False) -> Iterator[None]:
    """Answers Ctrl-C and SIGTERM at once instead of recording them.

    A training run only records signals and stops after a step, when its state is saved. Decoding a
    dataset, an evaluation or a figure takes minutes and has no steps. Signals that the process
    ignores or leaves to the system stay as they are, and so do all signals outside the main thread.

    Args:
        saved: whether the state of the run is saved, so that the same command continues.

    Raises:
        KeyboardInterrupt: at Ctrl-C, if nothing is saved.
        RunStopped: at SIGTERM, or at either signal if the state is saved; also for a signal that
            was recorded before.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and not saved:
            raise KeyboardInterrupt
        raise RunStopped(f"stopped by {signal.Signals(number).name}", 128 + number, saved=saved)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    replaced = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in replaced:
            signal.signal(number, stop)
        for recorded in recorded_signals:
            stop(recorded, None)
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
