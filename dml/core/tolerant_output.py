"""Output that may fail: a terminal that closes or a full disk does not stop a training."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


class TolerantStream:
    """A stream of text that stays silent after the first text that it cannot write.

    Args:
        stream: the stream to write to, such as `sys.stdout`.
        notify: called with the error when the stream fails.
    """

    def __init__(self, stream: TextIO, notify: Callable[[OSError], None]) -> None:
        self._stream = stream
        self._notify = notify

    def write(self, text: str) -> int:
        """Writes a text if the stream still can; returns its length."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream if it still can."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        # What the stream still holds is dropped; Python would try to write it again at exit.
        discard(self._stream)
        with suppress(OSError):
            self._stream.flush()
        self._notify(error)


def discard(stream: TextIO) -> None:
    """Redirects the file of a stream to /dev/null, so that a flush at exit succeeds."""
    with suppress(OSError, ValueError):  # a stream without a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def tolerant_output() -> Iterator[None]:
    """Lets work go on where stdout or stderr cannot be written; a line on stderr says so once."""
    before = sys.stdout, sys.stderr

    def say(error: OSError) -> None:
        line = f"note: the output cannot be written ({error.strerror}); the work goes on"
        print(line, file=sys.stderr)

    sys.stderr = TolerantStream(before[1], lambda error: None)
    sys.stdout = TolerantStream(before[0], say)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout, sys.stderr = before
