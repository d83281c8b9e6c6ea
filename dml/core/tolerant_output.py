"""Output that may fail: a terminal that closes or a full disk does not stop a training run."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TextIO

# Errors of an output that nobody reads: a pipe without a reader, a terminal that is gone.
CLOSED = (errno.EPIPE, errno.EIO)
_lost: list[str] = []  # what was said of the outputs that failed, once, while a context is open


class TolerantStream:
    """A stream of text that stays silent after the first text that it cannot write.

    Args:
        stream: the stream to write to, such as `sys.stdout`.
        errors: numbers of the errors that it tolerates; None: all. It raises others.
    """

    def __init__(self, stream: TextIO, errors: Container[int] | None = None) -> None:
        self._stream, self.errors = stream, errors
        self.says_so = False

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
        if self.errors is not None and error.errno not in self.errors:
            raise error
        # What the stream still holds is dropped; Python would try to write it again at exit.
        discard(self._stream)
        with suppress(OSError):
            self._stream.flush()
        self._say(f"note: the output cannot be written ({error.strerror}); the work goes on")

    def _say(self, line: str) -> None:
        """Says that an output is lost, once, in the log of the run and on stderr."""
        if _lost:
            return
        _lost.append(line)
        # imported late: a Python without our packages can say what it lacks
        from dml.core.run_log import run_logger

        run_logger.info(line)
        if self.says_so:
            print(line, file=_innermost(sys.stderr))


def _innermost(stream: Any) -> Any:
    """Returns the stream behind rich's, which would draw its line again."""
    return getattr(stream, "rich_proxied_file", stream)


def discard(stream: TextIO) -> None:
    """Redirects the file of a stream to /dev/null, so that a flush at exit succeeds."""
    # ValueError: a stream without a file.
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def lost_output() -> str:
    """Returns the note on an output that failed earlier in this command; empty if none did."""
    return "".join(_lost)


@contextmanager
def closable_output() -> Iterator[None]:
    """Lets work end in silence where stdout or stderr is closed; other errors are raised."""
    with _replaced_streams():
        yield


@contextmanager
def tolerant_output() -> Iterator[None]:
    """Lets work go on where stdout or stderr cannot be written; a line says so once."""
    with _replaced_streams() as streams:
        before = [(stream, stream.errors, stream.says_so) for stream in streams]
        for stream in streams:
            stream.errors, stream.says_so = None, True
        try:
            yield
        finally:
            for stream in streams:
                stream.flush()
            for stream, errors, says_so in before:
                stream.errors, stream.says_so = errors, says_so


@contextmanager
def _replaced_streams() -> Iterator[list[TolerantStream]]:
    """Yields stdout and stderr as tolerant streams, which replace them meanwhile.

    Those of a context around this one stay.
    """
    streams: list[TolerantStream] = []
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # of a program without a console
                continue
            if not isinstance(stream, TolerantStream):
                stack.callback(setattr, sys, name, stream)
                stream = TolerantStream(stream, CLOSED)
                setattr(sys, name, stream)
                stack.callback(_lost.clear)
            streams.append(stream)
        yield streams
