"""Pictures that explain verdicts on claims: python scripts/explain_claims.py metrix

    metrix   the pull of the mixed loss on similarities of positives and negatives, along the
             training of contrastive; writes why_metrix.png and .csv

Uses the settings of experiment=claims_metrix; a minute on one core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dml.core.errors import UserError
from dml.reporting.catalog import list_cells
from dml.reporting.claims.mixing_pull import explain_mixing

STEPS, EVERY = 600, 25


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", choices=("metrix",))
    parser.add_argument("overrides", nargs="*", help="options of train.py, such as loss=ms")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of training (default: {STEPS})")
    options = parser.parse_intermixed_args(argv)
    words = ["loss=contrastive", "method=plain", "optim.lr=1e-3", *options.overrides]
    out = options.out / f"why_{options.subject}.png"
    try:
        explain_mixing(list_cells("claims_metrix", words)[0], options.steps, EVERY, out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"written  {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
