"""Runs every experiment in its smallest form, on stand-ins, to its report: make rehearsal

    python scripts/rehearse.py                          all experiments
    python scripts/rehearse.py mft_table2 ccp_figure4   some of them

Trains the first cell of each method and protocol, and draws the report of these runs. Finished runs
are not repeated, so that the same command continues. Writes docs/results/rehearsal.md at the end of
all experiments.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import clone  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path


@report_errors
def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if nothing had problems, else 1."""
    parser = Parser(__doc__)
    parser.add_argument("experiments", nargs="*", help="ids (default: all)")
    parser.add_argument("--outputs", type=parse_path, default=Path("outputs/rehearsal"))
    options = parser.parse(words)
    from scripts.docs.rehearsal import rehearse_all  # imported late: --help need not load torch

    return rehearse_all(options.experiments, options.outputs)


if __name__ == "__main__":
    sys.exit(main())
