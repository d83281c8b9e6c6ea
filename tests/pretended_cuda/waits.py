"""Counts what makes the host wait for the GPU, by the line of the program that asked for it."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

HERE = os.path.dirname(__file__) + os.sep
PACKAGES = f"{os.sep}site-packages{os.sep}"
OURS = f"{os.sep}dml{os.sep}"
TORCH = f"{PACKAGES}torch{os.sep}"
# Code that asks for others. Names in angle brackets are code that was made while running.
BETWEEN = (HERE + "device", HERE + "torch_cuda", "<")
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


@dataclass(frozen=True)
class Wait:
    """One kind of wait at one line.

    Attributes:
        what: the operation.
        where: file and line that asked for it, outside of torch and Python's own library.
        line: the nearest line of ours above it, if that is another one.
    """

    what: str
    where: str
    line: str = ""

    def __str__(self) -> str:
        return f"{self.what} at {self.where}" + (f" called from {self.line}" if self.line else "")


_all: Counter[Wait] = Counter()


def note_wait(what: str) -> None:
    """Counts a wait for the line that asked for it."""
    where = line = ""
    frame = sys._getframe(1)
    while frame is not None and not line:
        path = frame.f_code.co_filename
        library = TORCH in path or (path.startswith(STANDARD_LIBRARY) and PACKAGES not in path)
        if not library and not path.startswith(BETWEEN):
            place = f"{path}:{frame.f_lineno}"
            where = where or place
            if OURS in path and PACKAGES not in path:
                line = place
        frame = frame.f_back  # type: ignore[assignment]
    _all[Wait(what, where, "" if line == where else line)] += 1


@contextmanager
def count_waits() -> Iterator[Counter[Wait]]:
    """Yields a counter that holds, after the block, the waits inside it."""
    before, inside = _all.copy(), Counter[Wait]()
    yield inside
    inside.update(_all - before)


def listed(waits: Counter[Wait]) -> str:
    """Returns the waits as lines, for the message of a test that fails."""
    return "\n".join(["", *(f"{count} × {wait}" for wait, count in waits.most_common())])
