"""Measures of a finished run's embeddings, as in the Metrix paper.

    python scripts/analyze_metrix.py outputs/single/…/seed0-… --epochs 5

Prints alignment and uniformity of the test embeddings and utilization of the training embeddings
(for method=metrix also with mixed ones), and writes them to the folder's `analysis/`, with a plot
of how often a mix acts as a positive.
"""

from __future__ import annotations

import sys

import environment  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from scripts.studies.metrix_analysis import analyze_metrix


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = make_parser(__doc__)
    parser.add_argument("run", help="run folder")
    parser.add_argument(
        "--epochs", type=int, default=1, help="epochs of mixed batches (default: 1)"
    )
    options = parser.parse_args(argv)
    measures = analyze_metrix(options.run, options.epochs)
    for name, value in measures.items():
        print(f"{name:18s} {value:9.4f}")
    print(f"written to {options.run}/analysis")
    return 0


if __name__ == "__main__":
    sys.exit(main())
