"""The class of images by a file of embeddings: by their neighbors, and by the nearest class mean.

Shapes: Q queries, N rows of the file, D dimensions, C classes, k neighbors.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.core.counts import count_of
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.retrieval.embedding_file import ImageEmbeddings
from dml.retrieval.file_search import Columns, find_neighbors, limit_neighbors, read_queries

UNKNOWN = "unknown"
NUMBERS = ("votes", "neighbor_distance", "mean_distance")
CHUNK = 65_536  # rows that are read at once
UNIT = 1e-2  # largest difference of a length from 1: float16 has three digits


def classify_file(
    path: str | Path,
    queries: Sequence[str | Path | int],
    k: int,
    embed: Callable[[Sequence[str], ImageEmbeddings], np.ndarray],
    index: bool | str = False,
    max_distance: float | None = None,
) -> Columns:
    """Returns a row for each query with its class; see `dml.classify`.

    Raises:
        UserError: the file has no labels; and see `dml.retrieval.file_search.search_file`, whose
            arguments these are.
    """
    read = read_queries(path, queries, embed)
    if read.file.labels is None:
        raise UserError(
            f"classify: {path} has no labels; classes come from images in class folders, or from "
            f"an array labels"
        )
    labels = read.file.labels.read_all()
    k = limit_neighbors(read, k)
    limit = np.inf if max_distance is None else max_distance
    answers = find_neighbors(Path(path), read, k, index)
    neighbors, distances = (part.reshape(-1, k) for part in answers)
    means = _sum_classes(read.file.stored, labels)
    _note_small_classes(means, k)
    table = []
    for number, query in enumerate(queries):
        vector = read.vectors[number].astype(np.float64)
        by_votes = _vote(labels[neighbors[number]], distances[number], limit)
        label = labels[read.rows[number]] if read.rows[number] >= 0 else None
        by_mean = means.find_nearest(vector, label, limit)
        table.append([str(query), read.labels[number], *by_votes, *by_mean])
    names = ["query", "query_label", "neighbors", "votes", "neighbor_distance"]
    columns = {}
    for place, name in enumerate([*names, "class_mean", "mean_distance"]):
        values = [row[place] for row in table]
        columns[name] = np.array(values, np.float64 if name in NUMBERS else object)
    return columns


def _note_small_classes(sums: _ClassSums, k: int) -> None:
    """Prints a note where classes have fewer images than vote, so that others outvote them."""
    is_small = sums.counts < k
    if not is_small.any():
        return
    smallest = int(sums.counts.argmin())
    fewest = int(sums.counts[smallest])
    print_plain(
        f"note: {int(is_small.sum()):,} of {count_of(len(is_small), 'class')} have fewer than {k} "
        f"images (-k), the smallest {fewest:,} ({sums.names[smallest]}): larger classes may "
        f"outvote them; compare with class_mean, or take a smaller -k",
        file=sys.stderr,
    )


def _vote(labels: np.ndarray, distances: np.ndarray, limit: float) -> tuple[str, float, float]:
    """Returns the class of most neighbors, its share of votes, and its nearest distance.

    Of classes with equal votes, that of the nearest neighbor counts, as in `neighbor_accuracy`.

    Args:
        labels: of the k neighbors, the nearest first.
        distances: of them.
        limit: neighbors at this distance or beyond have no vote. Without any vote the class is
            `UNKNOWN`, with the distance of the nearest neighbor.
    """
    voting = labels[distances < limit]
    if not len(voting):
        return UNKNOWN, 0.0, float(distances[0])
    # Counter keeps the order in which classes were first seen, and `max` takes the first.
    votes = Counter(voting.tolist())
    winner = max(votes, key=votes.__getitem__)
    nearest = distances[np.flatnonzero(labels == winner)[0]]
    return winner, votes[winner] / len(voting), float(nearest)


class _ClassSums(NamedTuple):
    """Sums of the embeddings of each class.

    Attributes:
        names: C classes, in their order.
        sums: C×D, in float64.
        counts: C numbers of rows.
        is_unit: whether all embeddings have length 1; then the means have it too.
    """

    names: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    is_unit: bool

    def find_nearest(
        self, vector: np.ndarray, label: str | None, limit: float
    ) -> tuple[str, float]:
        """Returns the class of the nearest mean, and its distance.

        Of equal distances, the first class counts. From `limit` on the class is `UNKNOWN`.

        Args:
            vector: D, of the query.
            label: class of a query that is a row of the file, which the mean leaves out; a class
                of this row alone has no mean then.
            limit: distance.
        """
        sums, counts = self.sums, self.counts
        if label is not None:
            is_of_query = self.names == label
            sums = sums - np.where(is_of_query[:, None], vector, 0)
            counts = counts - is_of_query
        means = sums / np.maximum(counts, 1)[:, None]
        if self.is_unit:
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
        distances = np.linalg.norm(means - vector, axis=1)
        distances[counts == 0] = np.inf
        nearest = int(distances.argmin())
        name = str(self.names[nearest]) if distances[nearest] < limit else UNKNOWN
        return name, float(distances[nearest])


def _sum_classes(stored: ImageEmbeddings, labels: np.ndarray) -> _ClassSums:
    """Returns the sums of the rows N×D of each class, which are read in parts."""
    names, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    width = stored.decode(slice(1)).shape[1]
    sums = np.zeros((len(names), width))
    is_unit = True
    for start in range(0, len(stored.embeddings), CHUNK):
        part = stored.decode(slice(start, start + CHUNK)).astype(np.float64)
        np.add.at(sums, numbers[start : start + CHUNK], part)
        lengths = np.linalg.norm(part, axis=1)
        is_unit = is_unit and bool((np.abs(lengths - 1) < UNIT).all())
    return _ClassSums(names, sums, counts, is_unit)
