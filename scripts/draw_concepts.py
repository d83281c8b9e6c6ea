"""Pictures of docs/concepts: python scripts/draw_concepts.py

Each is drawn from the code that it explains: splits, losses' potentials, the greedy k-center
algorithm, the stand-in glyphs. Takes the names of some of them, or draws all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from dml.data.digits import read_digits
from dml.data.protocol_splits import mlrc_folds, single_split
from dml.losses.potential_functions import DecayingPotential
from dml.reporting.potential_plot import EXTENT, potential_at, toy_charges
from dml.retrieval import nearest_neighbors
from dml.retrieval.geometry.coverage import greedy_k_center
from dml.runs.figures.drawing import BLUE, COLORS, GREEN, GREY, ORANGE, RED, plt, save

CONCEPTS = Path(__file__).resolve().parents[1] / "docs" / "concepts"
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
    save(figure, path)


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
    save(figure, path)


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
    save(figure, path)


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
    _tidy(axis)
    save(figure, path)


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
    save(figure, path)


def draw_mean_fields(path: Path) -> None:
    """Draws the interactions of one image: with all images of a batch, and with mean fields."""
    rng = np.random.default_rng(3)
    centers = np.array([0.5, 2.4, 4.6])
    angles = centers[:, None] + rng.normal(0, 0.2, (3, 8))
    points = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    fields = np.stack([np.cos(centers), np.sin(centers)], axis=-1)
    image = points[0, 1]
    figure, panels = plt.subplots(1, 2, figsize=(6, 3.1), layout="constrained")
    for panel, ends in zip(panels, (points, fields[:, None]), strict=True):
        panel.add_patch(plt.Circle((0, 0), 1, fill=False, color=GREY, lw=0.8))
        for color, group, targets in zip(COLORS, points, ends, strict=False):
            panel.scatter(*group.T, s=22, color=color, zorder=3)
            for x, y in targets:
                panel.plot([image[0], x], [image[1], y], color=color, lw=0.8)
        panel.scatter(*image, s=70, facecolors="none", edgecolors="black", zorder=4)
        panel.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
        panel.axis("off")
    for color, field in zip(COLORS, fields, strict=False):
        panels[1].scatter(*field, s=190, marker="*", color=color, edgecolors="black", zorder=5)
    panels[0].set_title("pairs: every image of the batch", fontsize=10)
    panels[1].set_title("mean fields: one star per class", fontsize=10)
    save(figure, path)


def draw_charges(path: Path) -> None:
    """Draws the two potentials against distance, and the field of a toy set on one class."""
    delta, alpha = 0.2, 4.0
    potential = DecayingPotential(alpha, delta, delta, min_distance=0.01)
    r = torch.linspace(0.15, 0.6, 300, dtype=torch.float64)
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.9), layout="constrained")
    left.plot(r, potential.attraction(r.square())[0], color=BLUE, label="same class: attraction")
    left.plot(r, potential.repulsion(r.square())[0], color=RED, label="other class: repulsion")
    left.axvline(delta, color=GREY, ls="--", lw=1)
    left.text(delta + 0.008, 1.0, r"$\delta$", color=GREY)
    left.set(xlabel="distance r of two charges", ylabel=r"potential, times $\delta^\alpha$")
    left.legend(frameon=False, fontsize=9)
    _tidy(left)
    charges, labels = toy_charges()
    axis = torch.linspace(-EXTENT, EXTENT, 160, dtype=torch.float64)
    field = potential_at(torch.cartesian_prod(axis, axis), charges.double(), labels, 0, potential)
    square, limit = (-EXTENT, EXTENT, -EXTENT, EXTENT), -float(field.min())
    right.imshow(
        field.view(160, 160).T,
        origin="lower",
        extent=square,
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
    )
    for label, marker in enumerate("os"):
        right.scatter(*charges[labels == label].T, c=COLORS[label], marker=marker, s=26, ec="black")
    right.set_title("field on the class of circles", fontsize=10)
    right.set(xticks=[], yticks=[])
    save(figure, path)


def draw_mixup(path: Path) -> None:
    """Draws mixes of a positive and a negative on the unit circle, and the density of λ."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 3.0), layout="constrained")
    positive, negative = (np.array([np.cos(a), np.sin(a)]) for a in (1.15, 0.05))
    arc = np.linspace(0, np.pi / 2, 100)
    left.plot(np.cos(arc), np.sin(arc), color=GREY, lw=0.8)
    left.plot(*np.stack([positive, negative]).T, color=GREY, lw=0.8, ls=":")
    for weight in (0.2, 0.4, 0.6, 0.8):
        mixed = weight * positive + (1 - weight) * negative
        mixed /= np.linalg.norm(mixed)
        left.scatter(
            *mixed, color=plt.get_cmap("RdYlGn")(weight), s=60, edgecolors="black", zorder=3
        )
        left.annotate(
            f"λ = {weight:g}", mixed, xytext=(8, 2), textcoords="offset points", fontsize=9
        )
    named = ((positive, "positive, label 1", GREEN), (negative, "negative, label 0", RED))
    for point, word, color in (*named, (np.array([np.cos(1.5), np.sin(1.5)]), "anchor", "black")):
        left.scatter(*point, color=color, s=70, zorder=3)
        left.annotate(
            word, point, xytext=(-8, -6), textcoords="offset points", ha="right", fontsize=9
        )
    left.set(xlim=(-0.3, 1.35), ylim=(-0.12, 1.1), aspect="equal")
    left.axis("off")
    share = np.linspace(0, 1, 200)
    right.plot(share, 6 * share * (1 - share), color=BLUE)
    right.set(xlabel="λ, the label of the mix", ylabel="density of Beta(2, 2)", ylim=(0, 1.7))
    _tidy(right)
    save(figure, path)


def draw_chance_constraints(path: Path) -> None:
    """Draws proxies that greedy k-center picks in one class, and the radius that they cover."""
    generator = torch.Generator().manual_seed(4)
    cloud = torch.randn(60, 2, generator=generator) * torch.tensor([1.0, 0.55])
    figure, panels = plt.subplots(1, 3, figsize=(7.5, 2.5), layout="constrained")
    for panel, k in zip(panels, (1, 3, 8), strict=True):
        picks, radii = greedy_k_center(cloud, k)
        panel.scatter(*cloud.T, s=10, color=GREY)
        for x, y in cloud[picks].tolist():
            panel.add_patch(plt.Circle((x, y), float(radii[-1]), color=BLUE, alpha=0.1, lw=0))
        panel.scatter(*cloud[picks].T, s=42, marker="s", color=ORANGE, edgecolors="black", zorder=3)
        many = "proxy" if k == 1 else "proxies"
        panel.set_title(f"{k} {many}: radius {float(radii[-1]):.2f}", fontsize=10)
        panel.set(xlim=(-3.2, 3.2), ylim=(-2.6, 2.6), aspect="equal", xticks=[], yticks=[])
    save(figure, path)


def _tidy(axis: plt.Axes) -> None:
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


PICTURES: dict[str, Callable[[Path], None]] = {
    name.removeprefix("draw_"): function
    for name, function in list(globals().items())
    if name.startswith("draw_")
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status, 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name", help=" | ".join(PICTURES))
    parser.add_argument("--out", type=Path, default=CONCEPTS, help="default: docs/concepts")
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(PICTURES)
    if unknown:
        parser.error(f"no picture {', '.join(sorted(unknown))}; choose from {', '.join(PICTURES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.names or PICTURES:
        path = options.out / f"{name}.png"
        PICTURES[name](path)
        print(f"picture  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
