"""Processes that are forked where a program would start fresh ones: torch is imported already."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import ForkContext, ForkProcess


class _Process(ForkProcess):
    """Prints to the descriptors 1 and 2, as a fresh process does, instead of to pytest's files."""

    def run(self) -> None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        super().run()


class _Context(ForkContext):
    Process = _Process


def context(start: str = "fork") -> multiprocessing.context.BaseContext:
    """Returns the context of a start method; its forked processes print as fresh ones do."""
    return _Context() if start == "fork" else multiprocessing.get_context(start)
