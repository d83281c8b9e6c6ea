"""Counts what makes the host wait for the GPU, by the line of the program that asked for it."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

HERE = os.path.dirname(__file__) + os.sep
PACKAGES = f"{os.sep}site-packages{os.sep}"
TORCH = f"{PACKAGES}torch{os.sep}"
# Code that asks for others. Names in angle brackets are code that was made while running.
BETWEEN = (HERE + "device", HERE + "torch_cuda", "<")
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


class Wait(NamedTuple):
    """One kind of wait, and the line outside of torch and Python's library that asked for it."""

    what: str
    where: str


_all: Counter[Wait] = Counter()


def note_wait(what: str) -> None:
    """Counts a wait for the line that asked for it."""
    frame = sys._getframe(1)
    while (path := frame.f_code.co_filename).startswith(BETWEEN) or (
        TORCH in path or (path.startswith(STANDARD_LIBRARY) and PACKAGES not in path)
    ):
        assert frame.f_back is not None
        frame = frame.f_back
    _all[Wait(what, f"{path}:{frame.f_lineno}")] += 1


@contextmanager
def count_waits() -> Iterator[Counter[Wait]]:
    """Yields a counter that holds, after the block, the waits inside it."""
    before, inside = _all.copy(), Counter[Wait]()
    yield inside
    inside.update(_all - before)


def listed(waits: Counter[Wait]) -> str:
    """Returns the waits as lines, for the message of a test that fails."""
    return "".join(f"\n{count} × {what} at {where}" for (what, where), count in waits.items())
