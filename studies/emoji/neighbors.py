"""Neighbors of unseen emoji before and after training, of drawings that may be shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from dml.core.errors import UserError
from dml.data.image_index import Subset
from dml.data.protocol import Split
from dml.runs.context import JobModel, RunContext
from dml.runs.figures.run_figures import draw_neighbors
from dml.runs.folder.run_folder import load_config
from dml.runs.load import load_embedder
from studies.emoji.sets import PICTURE_SETS
from studies.pictures import shrink

QUERIES = 5  # a row of the picture for each


def draw_emoji_neighbors(folder: Path, out: Path, trust: bool = False) -> None:
    """Draws queries of unseen classes with their neighbors before and after training.

    Queries and gallery are the test drawings of `PICTURE_SETS`, whose credits belong below the
    picture.

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
    draw_neighbors(split, networks, nn.Identity(), name, out, QUERIES)
    shrink(out, colors=64, width=900)


def _shown(subset: Subset) -> Subset:
    """Returns the images of `PICTURE_SETS`, which name the files."""
    names = {one.name for one in PICTURE_SETS}
    kept = [row for row in subset.rows if Path(str(subset.index.images[row])).stem in names]
    if not kept:
        raise UserError("run: its test images have none of the drawings that may be shown")
    return Subset(subset.index, np.array(kept))
