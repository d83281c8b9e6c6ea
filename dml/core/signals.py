"""Requests to stop: Ctrl-C, SIGTERM from a cluster, a closed terminal, or a time limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dml.core.errors import RunStopped
from dml.core.exit_status import ExitStatus

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A signal that comes again within this time is the same request: keys bounce, and programs such as
# `timeout` send a signal to a process and to its group.
REPEAT_SECONDS = 1.0
# Signals that a training run has recorded and will handle after its step.
recorded_signals: list[int] = []
_received: dict[int, float] = {}  # signal → `time.monotonic()`, while a context is open
_open_contexts = 0


@contextmanager
def _handle(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles the signals while the context is open; only the main thread can."""
    global _open_contexts
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle_once(number: int, frame: FrameType | None) -> None:
        now, before = time.monotonic(), _received.get(number)
        if before is None or now >= before + REPEAT_SECONDS:
            _received[number] = now
            handler(number, frame)

    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    handled = [number for number in SIGNALS if not (nohup and number == signal.SIGHUP)]
    previous = {number: signal.signal(number, handle_once) for number in handled}
    if not _open_contexts:
        recorded_signals.clear()
    _open_contexts += 1
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)
        _open_contexts -= 1
        if not _open_contexts:
            _received.clear()
            recorded_signals.clear()  # of no concern to what this process does later


@contextmanager
def raise_on_signals(saved: bool = False) -> Iterator[None]:
    """Handles signals at once instead of recording them.

    A training run only records signals, and stops after the step, when its state is saved. This
    context is for long work without steps: decoding a dataset, or a figure.

    Args:
        saved: whether the state of the run is saved, so that the same command continues it.

    Raises:
        KeyboardInterrupt: at Ctrl-C, if nothing is saved.
        RunStopped: at SIGTERM and SIGHUP, or at any signal if the state is saved; also for a signal
            that was recorded before, or by work inside that had no further step.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and not saved:
            raise KeyboardInterrupt
        raise RunStopped(_reason(number), 128 + number, saved=saved)

    def stop_if_recorded() -> None:
        if recorded_signals:
            last = recorded_signals[-1]
            recorded_signals.clear()
            stop(last, None)

    with _handle(stop):
        stop_if_recorded()
        try:
            yield
        except Exception:
            stop_if_recorded()  # nothing else begins, though this work has failed
            raise
        stop_if_recorded()


def pending_stop() -> RunStopped | None:
    """Returns the exception for a signal that is recorded, to raise in the middle of a step.

    None for a time limit, which may be too short for an evaluation: no run would come to a step.
    """
    if not recorded_signals:
        return None
    number = recorded_signals[-1]
    return RunStopped(_reason(number), 128 + number)


def _reason(number: int) -> str:
    if number == signal.SIGINT:
        return "interrupted"
    return f"stopped by {signal.Signals(number).name}"


class StopRequest:
    """Collects signals and the time limit; called after every step.

    A second Ctrl-C interrupts at once, if it comes a second after the first. What comes after the
    last step stops the work around (`raise_on_signals`).

    Args:
        max_minutes: time limit; None: no limit.
        started: from when it counts (`time.monotonic`); None: from now.
    """

    def __init__(self, max_minutes: float | None = None, started: float | None = None) -> None:
        if started is None:
            started = time.monotonic()
        self._deadline = None if max_minutes is None else started + 60 * max_minutes
        self._handling = _handle(self._receive)

    def __enter__(self) -> StopRequest:
        self._handling.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._handling.__exit__(*error)

    def __call__(self) -> RunStopped | None:
        """Returns the exception to raise once the state is saved, or None to continue."""
        request = pending_stop()
        if request is not None:
            return request
        if self._deadline is not None and time.monotonic() > self._deadline:
            return RunStopped("stopped at the time limit (max_minutes)", ExitStatus.TIME_LIMIT)
        return None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if recorded_signals and number == signal.SIGINT:
            raise KeyboardInterrupt
        recorded_signals.append(number)  # `raise_on_signals` handles it at once
