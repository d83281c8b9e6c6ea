"""Entry point of the program `dml`: what stops it before and after its work is one line, too.

A command handles signals while it works. Before, modules are loaded and options are read: an
exception there could come out of any library as another one, or be lost, and nothing is begun that
would have to be ended.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130  # as in `dml.core.exit_status`, which takes a while to import


class _EndAtOnce:
    """Ends the process at a signal that no command handles."""

    def __init__(self) -> None:
        self.status: int | None = None  # of the command that has ended
        self._process = os.getpid()
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # by nohup
                signal.signal(number, self)
        # Called last: Python restores the default action of signals while it ends.
        atexit.register(_ignore_signals)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.status is not None:  # all is said already
            os._exit(self.status)
        if os.getpid() == self._process:  # else a process that it has forked
            name = signal.Signals(number).name
            _write("interrupted\n" if number == signal.SIGINT else f"stopped by {name}\n")
        os._exit(128 + number)


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end_without_trackers(status: int) -> None:
    """Ends the process if a tracker was given up, whose library would wait for its server again."""
    tracking = sys.modules.get("dml.tracking.patient")
    if tracking is not None and tracking.given_up:
        sys.stdout.flush()
        os._exit(status)


def _write(line: str) -> None:
    """Writes a line on stderr, after what stdout still holds."""
    try:
        sys.stdout.flush()
        os.write(2, line.encode())
    except (OSError, RuntimeError):  # closed, or interrupted while it was written to
        pass


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    Args:
        words: name and arguments of the command; None for those in `sys.argv`.
    """
    signals = _EndAtOnce()
    try:
        from dml.cli.program import main as run_program  # imported late: it takes a while

        signals.status = run_program(words)
        _end_without_trackers(signals.status)
        return signals.status
    except KeyboardInterrupt:  # later ones are reported by the program itself
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def run(words: Sequence[str] | None = None) -> NoReturn:
    """Runs the command of this process, and ends the process.

    Args:
        words: see `main`.
    """
    statuses: list[int] = []
    atexit.register(_end_quickly, statuses)  # before libraries are loaded: it is called last
    statuses.append(main(words))
    sys.exit(statuses[0])


def _end_quickly(statuses: list[int]) -> None:
    """Ends the process without taking PyTorch apart, which takes seconds and changes nothing."""
    if not statuses:  # by an exception, which Python reports
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # Python reports it
        return
    os._exit(statuses[0])
