"""Pictures of the concepts of evaluation: retrieval, metrics, protocols, selection and folds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from dml.data.protocol_splits import mlrc_folds, single_split
from dml.data.readers.digits import read_digits
from dml.retrieval import nearest_neighbors
from dml.runs.figures.drawing import BLUE, GREEN, GREY, ORANGE, RED, plt, tidy
from studies.pictures import save_small

RANKED = (0, 1, 1, 0, 1, 0)  # relevance of the neighbors in the example of docs/concepts/metrics.md


def draw_zero_shot_retrieval(path: Path) -> None:
    """Draws images of training classes, and queries of unseen classes with their neighbors."""
    digits = read_digits()
    pixels = np.asarray(digits.images)
    rows = [np.flatnonzero(digits.labels == label) for label in range(10)]
    unseen = np.flatnonzero(digits.labels >= 5)
    points = torch.tensor(pixels[unseen][..., 0].reshape(len(unseen), -1).astype(np.float32))
    queries = [int(np.flatnonzero(unseen == rows[label][at])[0]) for label, at in _HARD_QUERIES]
    found = nearest_neighbors(points, k=6).indices[queries]
    figure = plt.figure(figsize=(8, 2.6), layout="constrained")
    grid = figure.add_gridspec(1, 2, width_ratios=(5, 7.6), wspace=0.06)
    left, right = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    left.suptitle("training: classes 0 to 4", fontsize=10)
    for axis, row in zip(
        left.subplots(3, 5).flat, (r[i] for i in range(3) for r in rows[:5]), strict=False
    ):
        _show(axis, pixels[row], None)
    right.suptitle("test: queries of classes 5 to 9 and their nearest neighbors", fontsize=10)
    panels = right.subplots(len(queries), 7, width_ratios=[1.25, *[1] * 6])
    for line, query, neighbors in zip(panels, queries, found.tolist(), strict=True):
        label = digits.labels[unseen[query]]
        _show(line[0], pixels[unseen[query]], GREY)
        for axis, one in zip(line[1:], neighbors, strict=True):
            right_one = digits.labels[unseen[one]] == label
            _show(axis, pixels[unseen[one]], GREEN if right_one else RED)
    save_small(figure, path)


_HARD_QUERIES = ((8, 87), (5, 145), (9, 110))  # (class, place in the class)


def _show(axis: plt.Axes, image: np.ndarray, frame: str | None) -> None:
    axis.imshow(image)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set(color=frame or "white", lw=2.5)


def draw_metrics(path: Path) -> None:
    """Draws the ranked neighbors of one query, with the precision at each relevant one."""
    figure, axis = plt.subplots(figsize=(7.5, 2.1), layout="constrained")
    total = sum(RANKED)
    for rank, relevant in enumerate(RANKED, start=1):
        color, hits = GREEN if relevant else RED, sum(RANKED[:rank])
        axis.add_patch(plt.Rectangle((rank - 0.4, 0), 0.8, 0.8, color=color, alpha=0.85, lw=0))
        word = "relevant" if relevant else "other"
        axis.text(rank, 0.4, word, ha="center", va="center", color="white", fontsize=9)
        axis.text(rank, -0.22, f"rank {rank}", ha="center", va="center", fontsize=9)
        axis.text(rank, 1.06, f"P({rank}) = {hits}/{rank}", ha="center", va="center", fontsize=9)
    axis.axvline(total + 0.5, color=GREY, ls="--", lw=1)
    axis.text(total + 0.56, 1.42, "MAP@R and R-precision stop at R", fontsize=9, color=GREY)
    axis.text(0.6, 1.42, f"R = {total} relevant items in the gallery", fontsize=9)
    axis.set(xlim=(0.4, len(RANKED) + 0.6), ylim=(-0.4, 1.6))
    axis.axis("off")
    save_small(figure, path)


def draw_protocols(path: Path) -> None:
    """Draws the classes that train, select the epoch and are tested under four protocols."""
    train, held_out = single_split(100)
    figure, axis = plt.subplots(figsize=(7.5, 2.4), layout="constrained")
    thirds = [(0, len(train), BLUE), (len(train), len(held_out), ORANGE), (100, 100, GREEN)]
    lines = {
        "traditional, pfml,\nmetrix, conventional": [(0, 100, BLUE), (100, 100, RED)],
        "validation, holdout": thirds,
        "mlrc, mlrc_ccp\n(one of four folds)": [(0, 75, BLUE), (75, 25, ORANGE), (100, 100, GREEN)],
    }
    for place, segments in enumerate(lines.values()):
        for start, width, color in segments:
            axis.barh(-place, width, left=start, color=color, height=0.62)
    words = ("trains", "selects the epoch", "tested once", "selects the epoch and is tested")
    for word, color in zip(words, (BLUE, ORANGE, GREEN, RED), strict=True):
        axis.barh(0, 0, color=color, label=word)
    axis.set(yticks=[0, -1, -2], yticklabels=list(lines), xlim=(0, 200), xlabel="classes of CUB")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False, labelsize=9)
    figure.legend(frameon=False, fontsize=9, ncol=4, loc="outside upper center", columnspacing=1)
    save_small(figure, path)


def draw_selection_on_test(path: Path) -> None:
    """Draws the bias of the best of many noisy scores, simulated: equal networks, n evaluations."""
    noise, chosen = np.random.default_rng(0).normal(0, 0.5, (2, 20_000, 200))
    counts = np.unique(np.geomspace(1, 200, 40).astype(int))
    figure, axis = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
    best = [noise[:, :n].max(axis=1).mean() for n in counts]
    fair = [
        np.take_along_axis(noise[:, :n], chosen[:, :n].argmax(axis=1)[:, None], 1).mean()
        for n in counts
    ]
    axis.plot(counts, best, color=RED, label="epoch selected on the test classes")
    axis.plot(counts, fair, color=GREEN, label="epoch selected on other classes")
    axis.set(xscale="log", xlabel="evaluations to select from", ylabel="reported minus true score")
    axis.set_xticks([1, 10, 60, 200], ["1", "10", "60", "200"])
    axis.legend(frameon=False, fontsize=9)
    tidy(axis)
    save_small(figure, path)


def draw_folds(path: Path) -> None:
    """Draws MLRC's four folds of 100 training classes, and the two ways to test four models."""
    figure, axis = plt.subplots(figsize=(7.5, 2.6), layout="constrained")
    for fold, (train, validation) in enumerate(mlrc_folds(100)):
        for classes, color in ((train, BLUE), (validation, ORANGE)):
            axis.bar(classes, 0.62, bottom=-fold - 0.31, width=1.0, color=color)
        axis.bar(np.arange(100, 200), 0.62, bottom=-fold - 0.31, width=1.0, color=GREEN)
        axis.text(203, -fold, f"model {fold + 1}: 128-d", va="center", fontsize=9)
    for word, color in (("trains", BLUE), ("validates", ORANGE), ("tested", GREEN)):
        axis.bar(0, 0, color=color, label=word)
    axis.set(yticks=[0, -1, -2, -3], yticklabels=[f"fold {n}" for n in range(1, 5)])
    axis.set(xlim=(-0.5, 250), xticks=range(0, 201, 50))
    axis.set_xlabel("classes of CUB", x=0.4)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False)
    figure.legend(frameon=False, fontsize=9, ncol=3, loc="outside upper center")
    save_small(figure, path)
