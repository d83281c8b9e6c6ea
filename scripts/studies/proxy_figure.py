"""Plot of proxies among two-dimensional embeddings of training images (ccp, Figure 2)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
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
from dml.runs.figures.drawing import plt, save
from dml.runs.job import JobRun, RunContext
from dml.runs.protocol import Job, Split
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


@dataclass(frozen=True)
class ProxyPanel:
    """Embeddings n×2 with labels n; converged and next proxies C×k×2; the covering radius."""

    embeddings: np.ndarray
    labels: np.ndarray
    converged: np.ndarray
    proxies: np.ndarray
    radius: float


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
        context = RunContext(Builder(config), identity, index)
        run = JobRun(context, job, Path(folder))

        def add_panel(start: StageStart) -> None:
            if start.stage > 0:
                panels.append(_panel(run, subset, split, start))

        assert isinstance(run.method, ChanceConstrained)
        run.method.on_stage = add_panel
        run.run(History(Path(folder) / "history.csv"), Tracker(), lambda: None)
    proxy_map(panels, f"{index.name}, {classes} classes, two dimensions", path)
    return panels


def proxy_map(panels: Sequence[ProxyPanel], name: str, path: Path) -> None:
    """Draws a panel per stage: converged proxies as squares, the next ones as circles.

    Args:
        panels: of stage 0 (proxies alone), then of the stages of ccp.
        name: title of the picture.
        path: PNG to write.
    """
    width = 3.3 * len(panels)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(width, 3.8), layout="constrained", squeeze=False
    )
    colors = plt.get_cmap("tab10")
    for number, (axis, panel) in enumerate(zip(axes[0], panels, strict=True)):
        axis.scatter(*panel.embeddings.T, c=colors(panel.labels % 10), s=3, alpha=0.35, lw=0)
        for label in range(len(panel.proxies)):
            style = {"color": colors(label % 10), "edgecolors": "black", "linewidths": 0.7}
            axis.scatter(*panel.converged[label].T, marker="s", s=34, **style)
            axis.scatter(*panel.proxies[label].T, marker="o", s=30, **style)
        what = "proxies alone" if number == 0 else f"stage {number}"
        axis.set_title(f"{what}: covering radius {panel.radius:.2f}", fontsize=9)
        axis.set_aspect("equal")
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle(f"{name}: converged proxies (squares), the next ones (circles)", fontsize=10)
    save(figure, path)


def _panel(run: JobRun, subset: Subset, split: Split, start: StageStart) -> ProxyPanel:
    embedded = run.evaluator(split).embed(run.embedder).query
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
