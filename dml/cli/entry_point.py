"""Entry point of the program `dml`: Ctrl-C is one line while modules are loaded, too."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    Args:
        words: name and arguments of the command; None for those in `sys.argv`.
    """
    try:
        from dml.cli.program import main as run_program  # imported late: it takes a while

        return run_program(words)
    except KeyboardInterrupt:  # later ones are reported by the program itself
        from dml.core.exit_status import ExitStatus

        print("interrupted", file=sys.stderr)
        return ExitStatus.INTERRUPTED
