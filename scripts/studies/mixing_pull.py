"""Pull of Metrix's mixed loss on pairs, measured along a training with the plain loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn

from dml.config.check import check
from dml.config.schema import Config
from dml.core.atomic_io import write_text
from dml.methods.metrix import Metrix
from dml.methods.metrix.analysis import SimilarityChanges, similarity_changes
from dml.results.catalog import Cell
from dml.runs.build import Builder
from dml.runs.figures.drawing import COLORS, GREY, plt, save, tidy
from dml.runs.job import JobRun, RunContext
from scripts.studies.seed_results import write_csv

KINDS = {  # of mixed pairs: title, anchors of anchor-negative pairs
    "pos_neg": ("positive with negative", "all"),
    "anc_neg": ("anchor with negative", "all"),
    "anc_neg_lone": ("anchor with negative, lone anchors", "lone"),
}
CLEAN = "the clean loss"


@dataclass(frozen=True)
class Pull:
    """Changes of similarities by one loss, mean over the batches between two steps.

    Attributes:
        step: last step of the interval.
        loss: `clean`, or a key of `KINDS`.
        positive, negative, positive_share, negative_share: see `SimilarityChanges`.
    """

    step: int
    loss: str
    positive: float
    negative: float
    positive_share: float
    negative_share: float


def explain_mixing(cell: Cell, steps: int, every: int, out: Path) -> list[Pull]:
    """Trains the plain loss of a cell, measures both losses on its batches, draws a picture.

    Args:
        cell: with `method=plain` and a loss of pairs that Metrix can mix.
        steps: of training.
        every: steps over which changes are averaged.
        out: PNG to write; a CSV file of the same name is written beside it.
    """
    pulls = list(_measure(cell, steps, every))
    write_text(out.with_suffix(".csv"), write_csv(pulls))
    _draw(pulls, out)
    return pulls


def _measure(cell: Cell, steps: int, every: int) -> Iterator[Pull]:
    cfg = cell.config.copy()
    cfg.search = None
    builder = Builder(check(cfg, Config))
    context = RunContext(builder, {}, builder.index())
    with TemporaryDirectory() as folder:
        run = JobRun(context, context.jobs()[0], Path(folder))
        optimizer, _ = builder.optimizer(run.embedder, run.method)
        losses = _losses(run.method.loss)  # type: ignore[arg-type]
        found: dict[str, list[SimilarityChanges]] = {name: [] for name in losses}
        epochs = -(-steps // cfg.protocol.steps_per_epoch)
        for step, (images, labels) in enumerate(run.batches(epochs), start=1):
            run.embedder.train()
            with torch.no_grad():
                x_BD = run.embedder(images)
            for name, loss in losses.items():
                changes = similarity_changes(partial(loss, labels=labels), x_BD, labels)
                found[name] += [] if changes is None else [changes]
            optimizer.zero_grad()
            run.method(run.embedder, images, labels)[0].backward()
            optimizer.step()
            if step % every == 0:
                for name, some in found.items():
                    if some:
                        yield Pull(step, name, *_means(some))
                    some.clear()
            if step == steps:
                return


def _means(changes: Sequence[SimilarityChanges]) -> Iterator[float]:
    return (fmean(getattr(one, key.name) for one in changes) for key in fields(SimilarityChanges))


def _losses(loss: nn.Module) -> dict[str, Callable[..., Tensor]]:
    """Returns the clean loss and the mixed ones (mixup of embeddings), of unit embeddings."""

    def clean(u_BD: Tensor, labels: Tensor) -> Tensor:
        return loss(u_BD, labels)

    def mixed(u_BD: Tensor, labels: Tensor, method: Metrix, kind: str) -> Tensor:
        return method.mixed_loss(cast(Any, None), "embed", kind, u_BD, u_BD, labels)

    losses: dict[str, Callable[..., Tensor]] = {"clean": clean}
    for name, (_, anchors) in KINDS.items():
        kind = name.removesuffix("_lone")
        method = Metrix(loss, types=["embed"], pairs=[kind], anc_neg_anchors=anchors)
        losses[name] = partial(mixed, method=method, kind=kind)
    return losses


def _draw(pulls: Sequence[Pull], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.3), sharex=True, layout="constrained")
    titles = {"clean": CLEAN} | {name: f"mixed: {title}" for name, (title, _) in KINDS.items()}
    for color, (name, title) in zip(COLORS, titles.items(), strict=False):
        own = [pull for pull in pulls if pull.loss == name]
        if not own:  # batches in which every anchor has a positive have no lone anchors
            continue
        steps = [pull.step for pull in own]
        gap = [pull.positive - pull.negative for pull in own]
        axes[0].plot(steps, gap, color=color, lw=1.6, label=title)
        shares = {"-": "positive_share", "--": "negative_share"}
        for style, key in shares.items():
            values = [100 * getattr(pull, key) for pull in own]
            axes[1].plot(steps, values, color=color, lw=1.4, ls=style)
    axes[0].axhline(0, color=GREY, lw=0.8)
    axes[0].set_title("rise of positive minus rise of negative similarities", fontsize=10)
    axes[1].set_title("percent of pairs that become more similar", fontsize=10)
    axes[1].plot([], [], color=GREY, label="pairs of a class")
    axes[1].plot([], [], color=GREY, ls="--", label="pairs of two classes")
    for axis in axes:
        axis.set_xlabel("step of training with the clean loss")
        tidy(axis)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    save(figure, path)
