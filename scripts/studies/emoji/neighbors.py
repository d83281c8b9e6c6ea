"""A picture of neighbors among emoji, of those drawings that may be shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from dml.data.image_index import Subset
from dml.data.protocol import Split
from dml.runs.figures.run_figures import draw_neighbors
from dml.runs.folder.run_folder import RunFolder, load_cfg, load_config
from dml.runs.job import JobRun, RunContext
from dml.runs.load import load_embedder
from scripts.studies.emoji.sets import PICTURE_SETS

CREDIT = "; ".join(one.credit for one in PICTURE_SETS)


def draw_emoji_neighbors(folder: Path, out: Path) -> None:
    """Draws queries of unseen classes with their neighbors before and after training.

    Queries and gallery are the test drawings of `PICTURE_SETS`. `CREDIT` belongs below the picture.

    Args:
        folder: finished run with `data=emoji`; its first model is used.
        out: PNG to write.
    """
    config = load_config(folder)
    context = RunContext(load_cfg(folder), config)
    first = context.jobs[0]
    split = Split(_shown(first.test.query))
    job = JobRun(context, replace(first, test=split), RunFolder(folder).job(first.name))
    networks = {"before training": job.embed(split)}
    trained = load_embedder(config, folder, *first.key)
    job.embedder.load_state_dict(trained.state_dict())
    networks["after training"] = job.embed(split)
    name = f"{config.loss['name']} on unseen emoji"
    draw_neighbors(split, networks, nn.Identity(), name, out)


def _shown(subset: Subset) -> Subset:
    """Returns the images of `PICTURE_SETS`, which name the files."""
    names = {one.name for one in PICTURE_SETS}
    kept = [row for row in subset.rows if Path(str(subset.index.images[row])).stem in names]
    return Subset(subset.index, np.array(kept))
