"""Plot of proxies among two-dimensional embeddings of training images (ccp, Figure 2)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dml.config.schema import Config
from dml.data.image_index import ImageIndex, Subset
from dml.losses.distances import clip_to_ball
from dml.methods.chance_constrained import ChanceConstrained, StageStart
from dml.methods.chance_constrained.k_center import mean_covering_radius
from dml.runs.build import Builder
from dml.runs.context import RunContext
from dml.runs.figures.stages import ProxyPanel, proxy_map
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_list import Job
from dml.runs.scores.evaluator import Split
from dml.tracking import History, Tracker

# Small enough for a CPU; a stage ends after 3 evaluations, 25 steps apart, without improvement.
OVERRIDES = (
    "data=digits",
    "method=ccp",
    "loss=c2",
    "embedder.size=2",
    "protocol.steps_per_epoch=25",
    "protocol.epochs=100",
    "data.batch_size=128",
    "data.sampler=random",
    "data.images_per_class=null",
    "optim.lr=1e-3",  # at the stand-in's learning rate, two dimensions collapse
    "transform.augmentation=none",
    "method.proxies_per_class=4",
    "method.pool_size=12",
)


def draw_proxy_figure(
    config: Config, identity: dict[str, Any], index: ImageIndex, classes: int, path: Path
) -> list[ProxyPanel]:
    """Trains on the first classes of a dataset and draws a panel at the end of each stage.

    Args:
        config: composed with `OVERRIDES`; `method.stages` is the number of stages.
        identity: see `dml.config.identity.identity`.
        index: the dataset, used for training and for the picture.
        classes: number of its classes.
        path: PNG to write.

    Returns:
        The panels: of the problem with the initial proxies, then of each stage.
    """
    subset = Subset(index, np.arange(len(index.labels))).of_classes(range(classes))
    split = Split(subset)
    panels: list[ProxyPanel] = []
    with tempfile.TemporaryDirectory() as folder:
        job = Job(0, 0, subset, split, split)
        context = RunContext.open(Builder(config), identity, index)
        run = JobRun(context, job, Path(folder))

        def add_panel(start: StageStart) -> None:
            if start.stage > 0:
                panels.append(_panel(run, subset, split, start))

        assert isinstance(run.method, ChanceConstrained)
        run.method.on_stage = add_panel
        run.run(History(Path(folder) / "history.csv"), Tracker(), lambda: None)
    proxy_map(panels, f"{index.name}, {classes} classes, two dimensions", path)
    return panels


def _panel(run: JobRun, subset: Subset, split: Split, start: StageStart) -> ProxyPanel:
    embedded = run.data.evaluator(split).embed(run.embedder).query
    converged, proxies = (_clip(p) for p in (start.converged, start.proxies))
    radii = [
        mean_covering_radius(embedded[subset.labels == label][None], converged[label][None])
        for label in range(subset.num_classes)
    ]
    return ProxyPanel(
        embedded.cpu().numpy(),
        subset.labels,
        converged.cpu().numpy(),
        proxies.cpu().numpy(),
        float(np.mean(radii)),
    )


def _clip(proxies_CkD: Tensor) -> Tensor:
    return clip_to_ball(proxies_CkD.flatten(0, 1)).view_as(proxies_CkD)
