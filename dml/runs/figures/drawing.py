"""Drawing of learning curves and of grids of retrieved neighbors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageColor

from dml.core.atomic_io import replace_file
from dml.core.progress import format_epoch
from dml.runs.console import title

if "MPLBACKEND" not in os.environ:  # a notebook's, or the user's
    matplotlib.use("Agg")  # no display on a cluster
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colors of Okabe and Ito without yellow: distinct for color-blind readers, on white and on black.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d46", "#7f7f7f")
BLUE, ORANGE, GREEN, RED, GREY = "#3366aa", "#cc7722", "#2e8b57", "#bb3333", "#777777"
CELL, MARGIN, FRAME = 132, 4, 4  # pixels of the neighbor grid


def learning_curve(
    histories: Sequence[Sequence[dict[str, float]]], select: str, name: str, path: Path
) -> None:
    """Draws scores and loss against epochs: a line per job, with its best evaluation.

    Args:
        histories: per job its rows of `history.csv` as numbers.
        select: the metric that selects the best epoch.
        name: title of the picture.
        path: PNG to write.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 5.5), sharex=True, height_ratios=(2, 1), layout="constrained"
    )
    alone = len(histories) == 1
    drawn = [rows for rows in histories if rows]  # a history may have been deleted after training
    for number, rows in enumerate(drawn):
        epochs = [row["epoch"] for row in rows]
        values = [100 * row[select] for row in rows]
        best = max(rows[1:] or rows, key=lambda row: row[select])
        label = (
            f"best {100 * best[select]:.1f} at epoch {format_epoch(best['epoch'])}"
            if alone
            else None
        )
        top.plot(epochs, values, color=BLUE, lw=1.6, alpha=1 if alone else 0.5)
        top.plot(best["epoch"], 100 * best[select], "o", color=ORANGE, label=label)
        if number == 0:
            before = f"untrained {values[0]:.1f}"
            top.axhline(values[0], color=GREY, lw=1, ls="--", label=before, zorder=1)
        losses = [(row["epoch"], row["loss"]) for row in rows if "loss" in row]
        if losses:
            marker = "o" if len(losses) == 1 else None  # a single point has no line
            alpha = 1 if alone else 0.5
            bottom.plot(*zip(*losses, strict=True), color=BLUE, lw=1.4, marker=marker, alpha=alpha)
    top.set_title(name, fontsize=11)
    top.set_ylabel(f"{title(select)} in percent, unseen classes")
    if drawn:
        top.legend(frameon=False, fontsize=9)
    bottom.set_ylabel("training loss")
    bottom.set_xlabel("epoch")
    for axis in (top, bottom):
        tidy(axis)
    save(figure, path)


@dataclass(frozen=True)
class RetrievedImages:
    """The retrieved images of one network.

    Attributes:
        title: of the network.
        images: for each query its k nearest gallery images H×W×3 uint8, nearest first.
        correct: q×k booleans, True if the class is the query's.
    """

    title: str
    images: Sequence[Sequence[np.ndarray]]
    correct: np.ndarray


def neighbor_grid(
    queries: Sequence[np.ndarray], networks: Sequence[RetrievedImages], name: str, path: Path
) -> None:
    """Draws queries with their nearest gallery images, framed green if the class is the same.

    Args:
        queries: q images H×W×3 uint8.
        networks: their neighbors by one network or several, side by side.
        name: title of the picture.
        path: PNG to write.
    """
    q, gap = len(queries), CELL // 3
    # A single image of all cells, since an axis for each of a hundred images would take seconds.
    columns = [_grid_column(queries, np.full(q, None))]
    ticks, words = [CELL / 2], ["query"]
    figure_width = sum(1 + network.correct.shape[1] for network in networks)
    figure, axis = plt.subplots(figsize=(0.85 * figure_width + 0.2, 0.85 * q + 0.85))
    for network in networks:
        columns.append(np.full((q * CELL, gap, 3), 255, dtype=np.uint8))
        left, k = sum(column.shape[1] for column in columns), network.correct.shape[1]
        for rank in range(k):
            images = [row[rank] for row in network.images]
            columns.append(_grid_column(images, network.correct[:, rank]))
            ticks.append(left + rank * CELL + CELL / 2)
            words.append(str(rank + 1))
        share = f"{network.title}: {network.correct.mean():.0%} are of the query's class"
        axis.text(left + k * CELL / 2, -0.5 * CELL, share, ha="center", va="center", fontsize=9)
    figure.subplots_adjust(0.01, 0.01, 0.99, 1 - 0.85 / (0.85 * q + 0.85))
    axis.imshow(np.concatenate(columns, axis=1))
    axis.set_xticks(ticks, words)
    axis.set_yticks([])
    axis.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False)
    axis.spines[:].set_visible(False)
    figure.suptitle(name, fontsize=10, y=0.995, va="top")
    save(figure, path)


def _grid_column(images: Sequence[np.ndarray], correct: np.ndarray) -> np.ndarray:
    """Returns framed images below each other; an image that is neither right nor wrong is grey."""
    colors = {None: GREY, True: GREEN, False: RED}
    frames = [colors[None if value is None else bool(value)] for value in correct]
    return np.concatenate([_frame_image(i, f) for i, f in zip(images, frames, strict=True)])


def _frame_image(image: np.ndarray, frame: str) -> np.ndarray:
    """Returns an image H×W×3 in a colored frame on white, CELL×CELL×3."""
    small = max(image.shape[:2]) < CELL / 2  # keep the pixels of a digit sharp
    inner = CELL - 2 * (MARGIN + FRAME)
    fitted = Image.fromarray(image).resize(
        (inner, inner), Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    )
    cell = np.full((CELL, CELL, 3), 255, dtype=np.uint8)
    cell[MARGIN:-MARGIN, MARGIN:-MARGIN] = ImageColor.getrgb(frame)
    edge = MARGIN + FRAME
    cell[edge:-edge, edge:-edge] = np.asarray(fitted)
    return cell


def tidy(axis: Axes) -> None:
    """Adds a pale grid and removes the frame above and to the right."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG and closes it."""
    with replace_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    plt.close(figure)
