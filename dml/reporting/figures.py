"""Pictures of one run: the learning curve and a grid of retrieved neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

from dml.durable import replacing
from dml.reporting.terminal import title

matplotlib.use("Agg")  # no display on a cluster
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, GREY = "#3366aa", "#cc7722", "#2e8b57", "#bb3333", "#777777"


def learning_curve(
    histories: Sequence[Sequence[dict[str, float]]], select: str, name: str, path: Path
) -> None:
    """Scores and loss against epochs, one line per job, the best evaluation marked.

    Args:
        histories: per job its rows of `history.csv` as numbers.
        select: the metric that picks the best epoch.
        name: title of the picture.
        path: PNG to write.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 5.5), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    alone = len(histories) == 1
    for number, rows in enumerate(histories):
        epochs = [row["epoch"] for row in rows]
        values = [100 * row[select] for row in rows]
        best = max(rows[1:] or rows, key=lambda row: row[select])
        label = f"best {100 * best[select]:.1f} at epoch {best['epoch']:g}" if alone else None
        top.plot(epochs, values, color=BLUE, lw=1.6, alpha=1 if alone else 0.5)
        top.plot(best["epoch"], 100 * best[select], "o", color=ORANGE, label=label)
        if number == 0:
            before = f"untrained {values[0]:.1f}"
            top.axhline(values[0], color=GREY, lw=1, ls="--", label=before, zorder=1)
        losses = [(row["epoch"], row["loss"]) for row in rows if "loss" in row]
        if losses:
            bottom.plot(*zip(*losses, strict=True), color=BLUE, lw=1.4, alpha=1 if alone else 0.5)
    top.set_title(name, fontsize=11)
    top.set_ylabel(f"{title(select)} in percent, unseen classes")
    top.legend(frameon=False, fontsize=9)
    bottom.set_ylabel("training loss")
    bottom.set_xlabel("epoch")
    for axis in (top, bottom):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def neighbor_grid(
    queries: Sequence[np.ndarray],
    neighbors: Sequence[Sequence[np.ndarray]],
    correct: np.ndarray,
    name: str,
    path: Path,
) -> None:
    """Queries with their nearest gallery images: green frames share the class, red ones do not.

    Args:
        queries: q images H×W×3 uint8.
        neighbors: for each query its k nearest images, nearest first.
        correct: q×k booleans.
        name: title of the picture.
        path: PNG to write.
    """
    q, k = correct.shape
    figure, axes = plt.subplots(
        q,
        k + 1,
        figsize=(0.85 * (k + 1) + 0.4, 0.85 * q + 0.6),
        squeeze=False,
        layout="constrained",
    )
    for row in range(q):
        images = [queries[row], *neighbors[row]]
        for column, image in enumerate(images):
            axis = axes[row, column]
            axis.imshow(image, interpolation="nearest" if image.shape[0] < 64 else None)
            axis.set(xticks=[], yticks=[])
            if column == 0:
                color, width = GREY, 0.8
            else:
                color, width = (GREEN if correct[row, column - 1] else RED), 2.6
            for spine in axis.spines.values():
                spine.set(color=color, linewidth=width)
    axes[0, 0].set_title("query", fontsize=9)
    for column in range(1, k + 1):
        axes[0, column].set_title(str(column), fontsize=9)
    figure.suptitle(f"{name}: {correct.mean():.0%} of these neighbors are right", fontsize=10)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    plt.close(figure)
