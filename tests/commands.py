"""The commands of `dml` as functions of their words, which return the exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from dml.cli.program import COMMANDS, main


def _command(name: str) -> Callable[[Iterable[str]], int]:
    def run(words: Iterable[str] = ()) -> int:
        before = sys.argv
        sys.argv = ["dml", name, *words]
        try:
            return main()
        finally:
            sys.argv = before

    return run


train, evaluate, embed, search, export, report, runs, prepare, plan = map(_command, COMMANDS)
