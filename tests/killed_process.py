"""Processes that are killed in the middle of their work."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess

KILLED = -signal.SIGKILL  # exit code


def die_at(point: str, work: Callable[..., object], *arguments: object) -> int | None:
    """Runs `work` in a forked process that dies at a fault point; returns its exit code."""

    def run() -> None:
        os.environ["DML_FAULT"] = point
        work(*arguments)

    process = _forked(run)
    process.join()
    return process.exitcode


def die_after(
    pause: Callable[[BaseProcess], None], work: Callable[..., object], *arguments: object
) -> int | None:
    """Runs `work` in a forked process that is killed after a pause; returns its exit code."""
    process = _forked(lambda: work(*arguments))
    try:
        pause(process)
    finally:
        process.kill()
        process.join()
    return process.exitcode


def _forked(work: Callable[[], object]) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process
