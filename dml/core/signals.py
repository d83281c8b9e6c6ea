"""Requests to stop: Ctrl-C, SIGTERM from a cluster, a closed terminal, or a time limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dml.core.errors import RunStopped
from dml.core.exit_status import ExitStatus

STATUS = {
    signal.SIGINT: ExitStatus.INTERRUPTED,
    signal.SIGTERM: ExitStatus.TERMINATED,
    signal.SIGHUP: ExitStatus.HUNG_UP,
}
# Signals that a training run has recorded and will handle after its step.
recorded_signals: list[int] = []


@contextmanager
def raise_on_signals(saved: bool = False) -> Iterator[None]:
    """Handles signals at once instead of recording them.

    A training run only records signals, and stops after the step, when its state is saved. This
    context is for long work without steps: decoding a dataset, an evaluation, a figure. Signals
    that the process ignores or leaves to the system are not handled, and outside the main thread no
    signals are.

    Args:
        saved: whether the state of the run is saved, so that the same command continues it.

    Raises:
        KeyboardInterrupt: at Ctrl-C, if nothing is saved.
        RunStopped: at SIGTERM and SIGHUP, or at any signal if the state is saved; also for a signal
            that was recorded before.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and not saved:
            raise KeyboardInterrupt
        raise RunStopped(f"stopped by {signal.Signals(number).name}", 128 + number, saved=saved)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in STATUS}
    replaced = {number: handler for number, handler in previous.items() if callable(handler)}
    try:
        for number in replaced:
            signal.signal(number, stop)
        for recorded in recorded_signals:
            stop(recorded, None)
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)


class StopRequest:
    """Collects signals and the time limit; called after every step.

    A second Ctrl-C interrupts at once.

    Args:
        max_minutes: time limit, counted from the construction of this object; None: no limit.
    """

    def __init__(self, max_minutes: float | None = None) -> None:
        self._deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self._received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            for number in STATUS:
                if signal.getsignal(number) != signal.SIG_IGN or number != signal.SIGHUP:  # nohup
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        recorded_signals.clear()

    def __call__(self) -> RunStopped | None:
        """Returns the exception to raise once the state is saved, or None to continue."""
        if self._received is not None:
            return RunStopped(f"stopped by {self._received.name}", STATUS[self._received])
        if self._deadline is not None and time.monotonic() > self._deadline:
            return RunStopped("stopped at the time limit (max_minutes)", ExitStatus.TIME_LIMIT)
        return None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._received = signal.Signals(number)
        recorded_signals.append(number)  # `raise_on_signals` handles it at once
