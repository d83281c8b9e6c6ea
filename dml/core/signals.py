"""Work that has nothing to save ends as soon as it is told to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dml.core.errors import RunStopped


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt and SIGTERM raises RunStopped, at once.

    A training run only takes note of signals and stops after a step, when its state is saved.
    Decoding a dataset takes many minutes and has no step. Signals that the process ignores, or
    leaves to the system, stay that way; so do all of them in a thread that cannot set handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heard = {number: handler for number, handler in before.items() if callable(handler)}
    try:
        for number in heard:
            signal.signal(number, _raise)
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise RunStopped(f"stopped by {signal.Signals(number).name}", 128 + number, saved=False)
