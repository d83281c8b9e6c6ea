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
from dataclasses import replace
from pathlib import Path

import clone  # noqa: F401
import numpy as np
from torch import nn

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.data.image_index import Subset
from dml.data.protocol import Split
from dml.runs.context import JobModel, RunContext
from dml.runs.figures.drawing import check_picture
from dml.runs.figures.run_figures import draw_neighbors
from dml.runs.folder.run_folder import load_config
from dml.runs.load import load_embedder
from scripts.studies.emoji.sets import PICTURE_SETS

PICTURE = Path("docs/results/emoji_neighbors.png")
CREDIT = "; ".join(one.credit for one in PICTURE_SETS)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = Parser(__doc__)
    parser.add_argument("run", type=parse_path, help="folder of a finished run")
    parser.add_argument("--out", type=parse_path, default=PICTURE)
    parser.add_argument("--trust", action="store_true", help="the run may name any class")
    parser.add_argument("--overwrite", action="store_true", help="replace any PNG")
    options = parser.parse(argv)
    if options.out != PICTURE:  # that of this repository
        check_picture(options.out, "--out", options.overwrite)
    draw_emoji_neighbors(options.run, options.out, options.trust)
    print_plain(f"written  {options.out}\ncredit   {CREDIT}")
    return 0


def draw_emoji_neighbors(folder: Path, out: Path, trust: bool = False) -> None:
    """Draws queries of unseen classes with their neighbors before and after training.

    Queries and gallery are the test drawings of `PICTURE_SETS`. `CREDIT` belongs below the picture.

    Args:
        folder: finished run with `data=emoji`; its first model is used.
        out: PNG to write.

    Raises:
        UserError: the run is of another dataset, or has none of the drawings.
    """
    config = load_config(folder, trust=trust)
    if config.data.name != "emoji":
        raise UserError(f"run: {folder} has data={config.data.name}; give a run with data=emoji")
    context = RunContext(config)
    first = context.jobs[0]
    split = Split(_shown(first.test.query))
    model = JobModel(context, replace(first, test=split))
    networks = {"before training": model.embed(split)}
    trained = load_embedder(config, folder, *first.key)
    model.embedder.load_state_dict(trained.state_dict())
    networks["after training"] = model.embed(split)
    name = f"{config.loss['name']} on unseen emoji"
    draw_neighbors(split, networks, nn.Identity(), name, out)


def _shown(subset: Subset) -> Subset:
    """Returns the images of `PICTURE_SETS`, which name the files."""
    names = {one.name for one in PICTURE_SETS}
    kept = [row for row in subset.rows if Path(str(subset.index.images[row])).stem in names]
    if not kept:
        raise UserError("run: its test images have none of the drawings that may be shown")
    return Subset(subset.index, np.array(kept))


if __name__ == "__main__":
    sys.exit(main())
