"""Columns of a file of embeddings that viewers of data show: thumbnails, neighbors, mistakes.

`image` is a struct of bytes and path, and `neighbors` one of ids (rows from 0) and distances, as
embedding-atlas, Spotlight and the viewer of Hugging Face read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NEIGHBORS = 10  # of each image, or all others of a smaller file
# By which `datasets` of Hugging Face, and the viewer of its hub, know the images of a file.
FEATURES = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
METADATA = {"huggingface": FEATURES}


@dataclass(frozen=True)
class ImageNeighbors:
    """The nearest neighbors of the N images of a file.

    Attributes:
        rows: N×k, the nearest first, without the image itself.
        distances: N×k, float64.
    """

    rows: np.ndarray
    distances: np.ndarray


@dataclass(frozen=True)
class LabelScores:
    """What the nearest neighbors of N images say of their classes.

    Attributes:
        nearest_labels: N names, of the nearest image.
        correct: N booleans: whether it is of the class of the image.
        has_match: N booleans: whether the class has another image; else `correct` says nothing.
        class_p1: N values of P@1 (0–1) of the images of the class; NaN without a match.
    """

    nearest_labels: np.ndarray
    correct: np.ndarray
    has_match: np.ndarray
    class_p1: np.ndarray


def find_neighbors(embeddings: np.ndarray) -> ImageNeighbors | None:
    """Returns the neighbors of all images; None for a single image.

    Args:
        embeddings: N×D, floating-point.

    Raises:
        ValueError: embeddings are not finite.
    """
    k = min(NEIGHBORS, len(embeddings) - 1)
    if not k:
        return None
    import torch  # imported late: a search in a file needs no torch

    from dml.retrieval.exact.search import nearest_neighbors

    points = torch.from_numpy(np.array(embeddings))
    points = points if points.dtype == torch.float64 else points.float()
    neighbors = nearest_neighbors(points, k=k)
    return ImageNeighbors(neighbors.indices.numpy(), neighbors.distances.double().numpy())


def score_labels(labels: np.ndarray, nearest: np.ndarray) -> LabelScores:
    """Returns whether the nearest image of each image is of its class.

    Args:
        labels: N names of classes.
        nearest: N rows.
    """
    classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    correct = labels[nearest] == labels
    has_match = sizes[classes] > 1
    means = np.bincount(classes, weights=correct) / sizes
    class_p1 = np.where(has_match, means[classes], np.nan)
    return LabelScores(labels[nearest], correct, has_match, class_p1)


@dataclass(frozen=True)
class ViewerColumns:
    """Makes the columns of a range of rows.

    Attributes:
        paths: of the N images.
        thumbnails: returns the JPEGs of rows.
        neighbors: of the images; None: no columns of them.
        scores: of the labels; None: no columns of them.
    """

    paths: Sequence[str]
    thumbnails: Callable[[range], list[bytes]]
    neighbors: ImageNeighbors | None = None
    scores: LabelScores | None = None

    def columns(self, start: int, stop: int) -> dict[str, Any]:
        """Returns the columns (pyarrow) of the rows from `start` to before `stop`."""
        import pyarrow

        rows = slice(start, stop)
        jpegs = self.thumbnails(range(start, min(stop, len(self.paths))))
        images = pyarrow.array(jpegs, pyarrow.binary()), _texts(self.paths[rows])
        columns = {"image": pyarrow.StructArray.from_arrays(images, ["bytes", "path"])}
        if self.neighbors is not None:
            ids = pyarrow.array(list(self.neighbors.rows[rows]), pyarrow.list_(pyarrow.int64()))
            distances = pyarrow.array(
                list(self.neighbors.distances[rows]), pyarrow.list_(pyarrow.float64())
            )
            parts = [ids, distances]
            columns["neighbors"] = pyarrow.StructArray.from_arrays(parts, ["ids", "distances"])
            columns["distances"] = distances
        if self.scores is not None:
            unknown = ~self.scores.has_match[rows]
            columns["correct"] = pyarrow.array(self.scores.correct[rows], mask=unknown)
            columns["nearest_label"] = _texts(self.scores.nearest_labels[rows])
            columns["class_p1"] = pyarrow.array(self.scores.class_p1[rows], mask=unknown)
        return columns


def _texts(values: Sequence[str] | np.ndarray) -> Any:
    """Returns texts (pyarrow); bytes that are no UTF-8, in names of files, are replaced."""
    import pyarrow

    return pyarrow.array([str(value).encode("utf-8", "replace").decode() for value in values])


def has_viewer_columns(path: Path) -> bool:
    """Returns whether a file has them; False for one that does not exist."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    from pyarrow import parquet

    return "image" in parquet.read_schema(path).names
