"""Plot of proxies among two-dimensional embeddings of training images (ccp, Figure 2)."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig
from torch import Tensor

from dml.config.check import check
from dml.data.image_index import ImageIndex, Subset
from dml.data.protocol import Job, Split
from dml.losses.distances import clip_to_ball
from dml.methods.chance_constrained import ChanceConstrained, StageStart
from dml.methods.chance_constrained.k_center import embed_pool, mean_covering_radius
from dml.models.embedder import Embedder
from dml.retrieval.geometry import inter_class_distance
from dml.runs.context import JobModel, RunContext
from dml.runs.figures.drawing import plt, save
from dml.runs.job import JobRun
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
    "method.pool_size=16",
)
SAMPLES = ("method._target_=studies.proxy_figure.SampleConstrained",)
MOST_COLUMNS = 3  # of panels


class SampleConstrained(ChanceConstrained):
    """CCP with samples in place of proxies (ccp, Section 5.3).

    The images that are picked for a stage are embedded by the network at every step. `proxies`
    holds their last embeddings.
    """

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B; starts the next stage if necessary."""
        if self._stage_is_over and self.training:
            self._pick_images(embedder)
        self._stage_steps += self.training
        both = embedder(torch.cat([images, self._images]))
        embeddings, references = both[: len(images)], both[len(images) :]
        self.proxies.data.copy_(references)
        loss = self.loss(embeddings, labels, ref_emb=references, ref_labels=self.proxy_labels)
        return loss + self.batch_pairs_weight * self.loss(embeddings, labels), {}

    def _pick_images(self, embedder: Embedder) -> None:
        """Starts a stage, and keeps the images whose embeddings are its first proxies."""
        sample_pool = self._sample_pool
        assert sample_pool is not None
        pool = list(sample_pool(self.pool_size, self._stage + 1))
        self._sample_pool = lambda count, stage: pool
        self._start_stage(embedder)
        self._sample_pool = sample_pool
        points = embed_pool(embedder, pool, self.num_classes).flatten(0, 1)
        picks = torch.cdist(self.proxies, points.to(self.proxies)).argmin(dim=1)
        self._images = torch.cat([images for images, _ in pool])[picks]


@dataclass(frozen=True)
class ProxyPanel:
    """Embeddings n×2 with labels n; converged and next proxies C×k×2; measures.

    Attributes:
        radius: covering radius, mean over classes.
        distance: mean distance of samples of different classes.
        map_at_r: of the embeddings.
    """

    embeddings: np.ndarray
    labels: np.ndarray
    converged: np.ndarray
    proxies: np.ndarray
    radius: float
    distance: float
    map_at_r: float


def draw_proxy_figure(
    cfg: DictConfig, index: ImageIndex, classes: int, path: Path
) -> list[ProxyPanel]:
    """Trains on the first classes of a dataset and draws a panel at the end of each stage.

    Args:
        cfg: composed with `OVERRIDES`; `method.stages` is the number of stages.
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
        model = JobModel(RunContext(check(cfg), images=index), job)

        def add_panel(start: StageStart) -> None:
            if start.stage > 0:
                panels.append(_panel(model, subset, split, start))

        assert isinstance(model.method, ChanceConstrained)
        model.method.on_stage = add_panel
        JobRun(model, Path(folder)).run(
            History(Path(folder) / "history.csv"), Tracker(), lambda: None
        )
    kind = "samples" if isinstance(model.method, SampleConstrained) else "proxies"
    proxy_map(panels, f"{index.name}, {classes} classes, {kind}", path)
    return panels


def proxy_map(panels: Sequence[ProxyPanel], name: str, path: Path) -> None:
    """Draws a panel per stage: converged proxies as squares, the next ones as circles.

    Args:
        panels: of stage 0 (proxies alone), then of the stages of ccp.
        name: title of the picture.
        path: PNG to write.
    """
    columns = min(len(panels), MOST_COLUMNS)
    rows = math.ceil(len(panels) / columns)
    size = 3.4 * max(columns, 2), 3.7 * rows + 0.3  # the legend needs two
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    colors = plt.get_cmap("tab10")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for number, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        axis.scatter(*panel.embeddings.T, c=colors(panel.labels % 10), s=8, alpha=0.5, lw=0)
        for label in range(len(panel.proxies)):
            style = {"color": colors(label % 10), "edgecolors": "black", "linewidths": 0.7}
            axis.scatter(*panel.converged[label].T, marker="s", s=34, **style)
            axis.scatter(*panel.proxies[label].T, marker="o", s=30, **style)
        what = "(a) before" if number == 0 else f"(b.{number})"
        axis.set_title(
            f"{what}: MAP@R {100 * panel.map_at_r:.1f}\n"
            f"covering radius {panel.radius:.2f}, between classes {panel.distance:.2f}",
            fontsize=10,
        )
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_xticks([])
        axis.set_yticks([])
    marks = {"embedding": ".", "converged proxy": "s", "next proxy": "o"}
    for text, marker in marks.items():
        axes.flat[0].scatter([], [], c="grey", marker=marker, label=text)
    figure.legend(loc="outside lower center", ncols=len(marks))
    figure.suptitle(name, fontsize=11)
    save(figure, path)


def _panel(model: JobModel, subset: Subset, split: Split, start: StageStart) -> ProxyPanel:
    embeddings = model.embed(split)
    embedded = embeddings.query
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
        inter_class_distance(embedded, torch.from_numpy(subset.labels)),
        model.evaluator(split).score(embeddings)["map_at_r"],
    )


def _clip(proxies_CkD: Tensor) -> Tensor:
    return clip_to_ball(proxies_CkD.flatten(0, 1)).view_as(proxies_CkD)
