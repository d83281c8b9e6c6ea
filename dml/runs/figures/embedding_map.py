"""Maps of test embeddings by t-SNE, one panel per network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from dml.runs.figures.drawing import COLORS, plt, save

SHAPES = "os^D"  # with eight colors enough to tell 32 classes apart
MAX_CLASSES, MAX_POINTS = 15, 1500
MIN_POINTS = 5  # t-SNE needs neighbors


def select_points(
    embeddings: np.ndarray, labels: np.ndarray, most: int = MAX_POINTS
) -> tuple[np.ndarray, np.ndarray]:
    """Returns embeddings n×D and labels n of the first classes, every k-th if there are many.

    Args:
        embeddings: N×D.
        labels: N.
        most: the largest n.
    """
    rows = np.flatnonzero(np.isin(labels, np.unique(labels)[:MAX_CLASSES]))
    rows = rows[:: -(-len(rows) // most) or 1]
    return embeddings[rows], labels[rows]


def compute_map(points: np.ndarray) -> np.ndarray:
    """Returns positions N×2 by t-SNE (van der Maaten and Hinton, JMLR 2008) with a fixed seed."""
    from sklearn.manifold import TSNE  # late: a second

    perplexity = min(30.0, (len(points) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(points)


def draw_map(axis: Axes, positions: np.ndarray, labels: np.ndarray) -> None:
    """Draws positions N×2; images of one class share color and shape."""
    for number, label in enumerate(np.unique(labels)):
        members = positions[labels == label]
        shape = SHAPES[number // len(COLORS) % len(SHAPES)]
        color = COLORS[number % len(COLORS)]
        axis.scatter(
            members[:, 0], members[:, 1], s=14, color=color, marker=shape, alpha=0.75, lw=0
        )
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
    axis.spines[:].set_visible(False)


def draw_embedding_maps(
    panels: Mapping[str, tuple[np.ndarray, np.ndarray]], name: str, path: Path
) -> None:
    """Draws maps side by side.

    Args:
        panels: title → embeddings N×D and labels N.
        name: title of the picture.
        path: PNG to write.
    """
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.2 * len(panels), 4.4), layout="constrained", squeeze=False
    )
    for axis, (panel, (embeddings, labels)) in zip(axes[0], panels.items(), strict=True):
        draw_map(axis, compute_map(embeddings), labels)
        axis.set_title(panel, fontsize=10)
    figure.suptitle(name, fontsize=11)
    save(figure, path)
