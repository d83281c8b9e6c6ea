"""Processes that are forked where a program would start fresh ones: torch is imported already."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import ForkContext, ForkProcess

from dml.core.run_log import run_logger


class _Process(ForkProcess):
    """Like a fresh process, prints to the descriptors 1 and 2 and logs to no file of its parent."""

    def run(self) -> None:
        run_logger.handlers.clear()
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        super().run()


class _Context(ForkContext):
    Process = _Process


def context(start: str = "fork") -> multiprocessing.context.BaseContext:
    """Returns the context of a start method; forked processes print and log as fresh ones do."""
    return _Context() if start == "fork" else multiprocessing.get_context(start)
