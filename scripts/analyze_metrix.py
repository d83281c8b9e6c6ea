"""Measures the embeddings of a finished run as the Metrix paper does.

    python scripts/analyze_metrix.py outputs/single/…/seed0-… --epochs 5

Alignment and uniformity of test embeddings, utilization of training embeddings (with mixed ones
for a run of method=metrix), and how often a mix acts as a positive; into the folder's `analysis/`.
"""

from __future__ import annotations

import argparse
import sys

from dml.core.errors import UserError
from dml.reporting.metrix_analysis import analyze_metrix


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 measured, 1 not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", help="run folder")
    parser.add_argument("--epochs", type=int, default=1, help="of mixed batches (default 1)")
    options = parser.parse_args(argv)
    try:
        measures = analyze_metrix(options.run, options.epochs)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, value in measures.items():
        print(f"{name:18s} {value:9.4f}")
    print(f"written to {options.run}/analysis")
    return 0


if __name__ == "__main__":
    sys.exit(main())
