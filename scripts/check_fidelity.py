"""Compares with the authors' code on the same inputs: python scripts/check_fidelity.py authors

    python scripts/check_fidelity.py            how to get the repositories
    python scripts/check_fidelity.py authors    runs those that are there, at the pinned revisions

The table of docs/fidelity.md is written anew, with both revisions and the date. What cannot be run
is a row that says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import clone  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path


@report_errors
def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 if a difference is too large or the folder has no clone."""
    parser = Parser(__doc__)
    parser.add_argument("repositories", nargs="?", type=parse_path, help="folder of their clones")
    options = parser.parse(words)
    from scripts.fidelity.table import compare_all  # imported late: --help need not load torch

    return compare_all(options.repositories)


if __name__ == "__main__":
    sys.exit(main())
