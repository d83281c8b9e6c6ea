"""Neighbors of unseen emoji before and after training: python scripts/draw_emoji.py <run folder>

Draws the first model of a finished run with data=emoji into docs/results/emoji_neighbors.png, with
drawings that may be shown only. The picture in docs/results/README.md shows the run of

    python train.py protocol=validation data=emoji data.batch_size=64 loss=proxy_anchor \\
        backbone=timm backbone.model=tf_efficientnet_lite0 backbone.input_size=48 \\
        backbone.weights=<file> embedder.size=128 optim.lr=3e-4 \\
        protocol.epochs=6 protocol.steps_per_epoch=20 protocol.evaluate_every=3

data/README.md says how to prepare the drawings, docs/networks.md where the weights come from.
"""

from __future__ import annotations

import sys
from pathlib import Path

import environment  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from scripts.studies.emoji.neighbors import CREDIT, draw_emoji_neighbors


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = make_parser(__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    parser.add_argument("--out", type=Path, default=Path("docs/results/emoji_neighbors.png"))
    options = parser.parse_args(argv)
    draw_emoji_neighbors(options.run, options.out)
    print(f"written  {options.out}\ncredit   {CREDIT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
