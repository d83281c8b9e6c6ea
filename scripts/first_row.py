"""The first row on real data, without a GPU and without training: make first-row

    python scripts/first_row.py                      CUB with DINO ViT-S/16, a quarter of an hour
    python scripts/first_row.py data.root=/disk      with further options of dml train

Prepares CUB (1.2 GB) and the weights (about 90 MB), scores the images in their boxes and whole, and
prints ours, OML's number, the difference, and a block to paste into an issue. Finished runs are
not repeated, so that the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import clone  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser


@report_errors
def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if both rows are there."""
    parser = Parser(__doc__)
    parser.add_argument("words", nargs="*", metavar="option=value", help="options of dml train")
    options = parser.parse(words)
    from scripts.rows.off_the_shelf import (
        run_first_row,
    )  # imported late: --help need not load torch

    return run_first_row(options.words)


if __name__ == "__main__":
    sys.exit(main())
