"""Waits for other processes, each of which may hang: a line after half a minute, and an end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.core.regular_files import open_regular
from dml.core.run_log import run_logger
from dml.core.signals import pending_stop

NOTE_SECONDS = 30.0  # of silence until a line says what is waited for
LIMIT_SECONDS = 600.0  # of silence until the wait ends with an error
STOPPED_SECONDS = 20.0  # between two looks: this process was stopped meanwhile
NAMED_SECONDS = 2.0  # of silence from which a stop says what was waited for


class NoAnswerError(UserError):
    """A process that this one waits for has not answered for `LIMIT_SECONDS`."""


class Wait:
    """A wait that another process can prolong; `check` is called about every second.

    Args:
        describe: returns who is silent and what to do, as `(subject, remedy)`. Called for messages
            only.
        stops: whether `check` raises requests to stop; not if other processes must stop at the same
            step.
    """

    def __init__(self, describe: Callable[[], tuple[str, str]], stops: bool = True) -> None:
        self._describe, self._stops, self._is_noted = describe, stops, False

    def check(self, seconds: float) -> None:
        """Prints a note after `NOTE_SECONDS` of silence.

        Args:
            seconds: of silence.

        Raises:
            RunStopped: a signal asks this process to stop.
            NoAnswerError: after `LIMIT_SECONDS` of silence.
        """
        request = pending_stop() if self._stops else None
        if request is not None:
            if seconds > NAMED_SECONDS and not self._is_noted:
                subject, remedy = self._describe()
                print_note(f"{subject} for {seconds:.0f} s; {remedy}")
            raise request
        if seconds > LIMIT_SECONDS:
            subject, remedy = self._describe()
            raise NoAnswerError(f"{subject} for {seconds:.0f} s; {remedy}")
        is_silent = seconds > NOTE_SECONDS
        if is_silent and not self._is_noted:
            subject, remedy = self._describe()
            print_note(f"{subject} for {seconds:.0f} s; {remedy}")
        self._is_noted = is_silent


def print_note(text: str) -> None:
    """Prints a note on stderr, and adds it to the log of the run."""
    print_plain(f"note: {text}", file=sys.stderr, flush=True)
    run_logger.info("note: %s", text)


class SignsOfLife:
    """Watches files that living processes touch again and again.

    Times of the files are compared with each other only: clocks of machines differ. Time in which
    this process itself was stopped, by Ctrl-Z for example, counts for nobody.
    """

    def __init__(self) -> None:
        self._times: dict[Path, float] = {}
        self._changed: dict[Path, float] = {}
        self._looked = time.monotonic()

    def silent_seconds(self, path: Path) -> float:
        """Returns for how long, as far as this object has seen, a file was not touched."""
        now = time.monotonic()
        if now - self._looked > STOPPED_SECONDS:
            self._times.clear()
        self._looked = now
        try:
            with open_regular(path) as file:  # opened: network file systems ask the server then
                touched = os.fstat(file.fileno()).st_mtime
        except (OSError, UserError):  # it is gone, and so is who held it
            touched = now
        if self._times.get(path) != touched:
            self._times[path], self._changed[path] = touched, now
        return now - self._changed[path]

    def longest_silent(self, paths: Iterable[Path]) -> tuple[Path, float]:
        """Returns the file that was not touched for the longest time, and the seconds."""
        longest = Path(), 0.0
        for path in paths:
            seconds = self.silent_seconds(path)
            if seconds >= longest[1]:
                longest = path, seconds
        return longest
