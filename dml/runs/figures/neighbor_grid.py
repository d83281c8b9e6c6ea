"""The nearest neighbors of a few test images, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from torch import nn

from dml.data.decode import load_image
from dml.data.image_index import Subset
from dml.retrieval import nearest_neighbors
from dml.runs.embeddings import SplitEmbeddings
from dml.runs.figures.drawing import GREEN, GREY, RED, plt, save
from dml.runs.protocol import Split

CELL, MARGIN, FRAME = 132, 4, 4  # pixels


def draw_neighbors(
    split: Split,
    networks: Mapping[str, SplitEmbeddings],
    transform: nn.Module,
    name: str,
    path: Path,
    count: int = 8,
) -> None:
    """Draws the nearest neighbors of a few queries, which are spread evenly over the classes.

    Neighbors are framed green if their class is the query's, else red.

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

    def column(subset: Subset, rows: np.ndarray, frames: list[str]) -> np.ndarray:
        pairs = zip(rows, frames, strict=True)
        return np.concatenate([_cell(subset, row, transform, frame) for row, frame in pairs])

    # A single image of all cells, since an axis for each of a hundred images would take seconds.
    columns = [column(split.query, queries, [GREY] * len(queries))]
    ticks, words = [CELL / 2], ["query"]
    size = 0.85 * (1 + len(networks) * (1 + k)) - 0.65, 0.85 * len(queries) + 0.85
    figure, axis = plt.subplots(figsize=size)
    for title, embeddings in networks.items():
        neighbors = nearest_neighbors(embeddings.query, embeddings.gallery, k=k).indices[queries]
        labels = embeddings.query_labels
        found = labels if embeddings.gallery_labels is None else embeddings.gallery_labels
        correct = (found[neighbors] == labels[queries][:, None]).cpu().numpy()
        columns.append(np.full((len(queries) * CELL, CELL // 3, 3), 255, dtype=np.uint8))
        left = sum(part.shape[1] for part in columns)
        for rank, rows in enumerate(neighbors.cpu().numpy().T):
            frames = [GREEN if right else RED for right in correct[:, rank]]
            columns.append(column(gallery, rows, frames))
            ticks.append(left + rank * CELL + CELL / 2)
            words.append(str(rank + 1))
        share = f"{title}: {correct.mean():.0%} are of the query's class"
        axis.text(left + k * CELL / 2, -0.5 * CELL, share, ha="center", va="center", fontsize=9)
    figure.subplots_adjust(0.01, 0.01, 0.99, 1 - 0.85 / size[1])
    axis.imshow(np.concatenate(columns, axis=1))
    axis.set_xticks(ticks, words)
    axis.set_yticks([])
    axis.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False)
    axis.spines[:].set_visible(False)
    figure.suptitle(name, fontsize=10, y=0.995, va="top")
    save(figure, path)


def _cell(subset: Subset, row: int, transform: nn.Module, frame: str) -> np.ndarray:
    """Returns an image of a subset in a colored frame on white, CELL×CELL×3."""
    index = subset.index
    image = transform(load_image(index.images[subset.rows[row]], index.apply_orientation))
    small = max(image.shape[1:]) < CELL / 2  # keep the pixels of a digit sharp
    resampling = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    picture = picture.resize((CELL - 2 * (MARGIN + FRAME),) * 2, resampling)
    return np.asarray(ImageOps.expand(ImageOps.expand(picture, FRAME, frame), MARGIN, "white"))
