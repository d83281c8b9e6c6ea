"""The nearest neighbors of a few test images, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import nn

from dml.data.decode import load_image
from dml.data.image_index import Subset
from dml.retrieval import nearest_neighbors
from dml.runs.figures.drawing import RetrievedImages, neighbor_grid
from dml.runs.scores.evaluator import Split, SplitEmbeddings


def draw_neighbors(
    split: Split,
    networks: Mapping[str, SplitEmbeddings],
    transform: nn.Module,
    name: str,
    path: Path,
    count: int = 8,
) -> None:
    """Draws the nearest neighbors of a few queries, which are spread evenly over the classes.

    Args:
        split: queries and gallery.
        networks: title of each network → its embeddings of the split.
        transform: of the images (to uint8 3×H×W), as for the network.
        name: title of the picture.
        path: PNG to write.
        count: number of queries, and of neighbors of each; of two networks five neighbors each.
    """
    gallery = split.gallery or split.query
    spread = np.linspace(0, len(split.query) - 1, min(count, len(split.query))).astype(int)
    queries = np.argsort(split.query.labels, kind="stable")[spread]
    k = min(count if len(networks) == 1 else 5, len(gallery) - (split.gallery is None))
    panels = []
    for title, embeddings in networks.items():
        neighbors, correct = _find_nearest(embeddings, queries, k)
        images = [[_load_picture(gallery, row, transform) for row in rows] for rows in neighbors]
        panels.append(RetrievedImages(title, images, correct))
    pictures = [_load_picture(split.query, row, transform) for row in queries]
    neighbor_grid(pictures, panels, name, path)


def _find_nearest(
    embeddings: SplitEmbeddings, queries: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the gallery rows nearest to each query, and whether they share its class."""
    labels = embeddings.query_labels
    gallery_labels = labels if embeddings.gallery_labels is None else embeddings.gallery_labels
    neighbors = nearest_neighbors(embeddings.query, embeddings.gallery, k=k).indices[queries]
    correct = gallery_labels[neighbors] == labels[queries][:, None]
    return neighbors.cpu().numpy(), correct.cpu().numpy()


def _load_picture(subset: Subset, row: int, transform: nn.Module) -> np.ndarray:
    index = subset.index
    image = transform(load_image(index.images[subset.rows[row]], index.apply_orientation))
    return image.permute(1, 2, 0).numpy()
