"""Waits of tests for what other processes and threads do."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 60.0  # seconds; a process that failed never does what a test waits for


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds; fails after `LIMIT` seconds."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
