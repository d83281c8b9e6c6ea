"""The commands of `dml` as functions of their words, which return the exit status."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable

from dml.cli.program import COMMANDS, main


def _command(name: str) -> Callable[[Iterable[str]], int]:
    def run(words: Iterable[str] = ()) -> int:
        before = sys.argv
        sys.argv = ["dml", name, *words]
        _forget_closed_streams()
        try:
            return main()
        finally:
            sys.argv = before

    return run


def _forget_closed_streams() -> None:
    """Removes the handlers that Hydra has left in an earlier test, whose output is gone."""
    for handler in [*logging.root.handlers]:
        if getattr(getattr(handler, "stream", None), "closed", False):
            logging.root.removeHandler(handler)


(train, evaluate, embed, search, export, report, runs, prepare, plan, check, torchrun) = map(
    _command, COMMANDS
)
