"""Classes of queries by labeled references, and the references that they rest on.

Shapes: B queries, N references, D dimensions, n queries of one class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dml.core.errors import UserError
from dml.retrieval.classification import (
    NEIGHBORS,
    predict_by_class_means,
    predict_by_neighbors,
)
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.exact.search import nearest_neighbors

IDENTIFIED = (  # columns that a table of queries has too
    "class_by_mean",
    "class_by_neighbors",
    "reference",
    "reference_distance",
    "right_reference",
    "right_reference_distance",
)


class NearestReferences(NamedTuple):
    """The nearest reference of a class for each of B queries.

    Attributes:
        labels: B classes.
        rows: B rows of the references; −1: the class has none.
        distances: B Euclidean distances; NaN where there is none.
    """

    labels: np.ndarray
    rows: np.ndarray
    distances: np.ndarray


class Identification(NamedTuple):
    """Classes of B queries by N references.

    Attributes:
        by_mean: the class of the nearest mean; see `class_mean_accuracy`.
        by_neighbors: the class of most neighbors; see `neighbor_accuracy`.
        right: the class of the query.
    """

    by_mean: NearestReferences
    by_neighbors: NearestReferences
    right: NearestReferences

    @property
    def is_wrong(self) -> np.ndarray:
        """B booleans: whether class mean or neighbors say another class than the query's."""
        is_wrong_by_mean = self.by_mean.labels != self.right.labels
        return is_wrong_by_mean | (self.by_neighbors.labels != self.right.labels)

    def rank_wrong(self) -> np.ndarray:
        """Returns the wrongly identified queries, the most certain errors first.

        They are in the order of the distance by which the reference of the wrong class is nearer
        than that of the right one, the largest first; a query without a right reference is first.
        Equal ones are in the order of rows.
        """
        rows = np.flatnonzero(self.is_wrong)
        wrong = self.by_neighbors.distances
        is_right_by_neighbors = self.by_neighbors.labels == self.right.labels
        wrong = np.where(is_right_by_neighbors, self.by_mean.distances, wrong)
        margin = np.nan_to_num(self.right.distances - wrong, nan=np.inf)
        return rows[np.argsort(-margin[rows], kind="stable")]


def identify(
    queries: SplitEmbeddings,
    references: SplitEmbeddings,
    normalize: Callable[[Tensor], Tensor] = F.normalize,
    neighbors: int = NEIGHBORS,
) -> Identification:
    """Returns the classes of queries by references.

    Args:
        queries: B×D, with B labels.
        references: N×D, with N labels.
        normalize: of class means, see `class_mean_accuracy`.
        neighbors: that vote, see `neighbor_accuracy`.

    Raises:
        UserError: embeddings or labels are invalid.
    """
    parts = (*queries[:2], *references[:2])
    try:
        by_mean_B, right_B = predict_by_class_means(*parts, normalize=normalize)
        by_neighbors_B, _ = predict_by_neighbors(*parts, neighbors=neighbors)
        nearest = []
        for labels_B in (by_mean_B, by_neighbors_B, right_B):
            nearest.append(nearest_of_class(labels_B, queries.query, references))
    except ValueError as error:
        raise UserError(f"evaluation: {error}") from error
    return Identification(*nearest)


def nearest_of_class(
    labels_B: Tensor, query: Tensor, references: SplitEmbeddings
) -> NearestReferences:
    """Returns for each query the nearest reference of a class.

    Args:
        labels_B: the class for each query.
        query: B×D.
        references: N×D, with N labels.
    """
    rows_B = torch.full_like(labels_B, -1)
    distances_B = torch.full_like(labels_B, torch.nan, dtype=torch.float64)
    for label in labels_B.unique():
        members_n = (references.query_labels == label).nonzero()[:, 0]
        if not len(members_n):
            continue
        asked_n = (labels_B == label).nonzero()[:, 0]
        nearest = nearest_neighbors(query[asked_n], references.query[members_n], k=1)
        rows_B[asked_n] = members_n[nearest.indices[:, 0]]
        distances_B[asked_n] = nearest.distances[:, 0].double()
    parts = (labels_B, rows_B, distances_B)
    return NearestReferences(*(part.cpu().numpy() for part in parts))
