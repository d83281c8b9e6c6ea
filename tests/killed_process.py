"""Processes that are killed in the middle of their work."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable

KILLED = -signal.SIGKILL  # exit code


def die_at(point: str, work: Callable[..., object], *arguments: object) -> int | None:
    """Runs `work` in a forked process that dies at a fault point; returns its exit code."""

    def run() -> None:
        os.environ["DML_FAULT"] = point
        work(*arguments)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    return process.exitcode
