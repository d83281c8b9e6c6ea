"""Which images a network retrieves: the grid of queries and their nearest neighbors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from dml.data.decode import load_image
from dml.data.image_index import Subset
from dml.retrieval import nearest_neighbors
from dml.runs.figures.drawing import neighbor_grid
from dml.runs.scores.evaluator import Embedded, Split


def draw_neighbors(
    split: Split, embedded: Embedded, transform: nn.Module, name: str, path: Path, count: int = 8
) -> None:
    """Draws the nearest neighbors of a few queries spread evenly over the classes.

    Args:
        split: what was embedded.
        embedded: its embeddings.
        transform: to what the network saw of an image (uint8 3×H×W).
        name: title of the picture.
        path: PNG to write.
        count: queries, and neighbors of each.
    """
    gallery = split.gallery or split.query
    spread = np.linspace(0, len(split.query) - 1, min(count, len(split.query))).astype(int)
    chosen = np.argsort(split.query.labels, kind="stable")[spread]
    found, correct = _nearest(
        embedded, chosen, k=min(count, len(gallery) - (split.gallery is None))
    )
    neighbor_grid(
        [_picture(split.query, row, transform) for row in chosen],
        [[_picture(gallery, row, transform) for row in rows] for rows in found],
        correct,
        name,
        path,
    )


def _nearest(embedded: Embedded, chosen: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Gallery rows of the chosen queries' nearest images, and whether they share the class."""
    labels = embedded.query_labels
    gallery_labels = labels if embedded.gallery_labels is None else embedded.gallery_labels
    found = nearest_neighbors(embedded.query, embedded.gallery, k=k).indices[chosen]
    correct = gallery_labels[found] == labels[chosen][:, None]
    return found.cpu().numpy(), correct.cpu().numpy()


def _picture(subset: Subset, row: int, transform: nn.Module) -> np.ndarray:
    image = transform(
        load_image(subset.index.images[subset.rows[row]], subset.index.apply_orientation)
    )
    return image.permute(1, 2, 0).numpy()
