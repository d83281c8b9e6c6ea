"""Accuracy of labels that are predicted from labeled references: class means, and neighbors.

Shapes: B queries, N references, D dimensions, C classes, k neighbors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from dml.retrieval.exact.search import nearest_neighbors
from dml.retrieval.inputs import ArrayLike, check_counts, check_labeled, check_one_dimension

NEIGHBORS = 5


def class_mean_accuracy(
    embeddings: ArrayLike,
    labels: ArrayLike,
    reference_embeddings: ArrayLike,
    reference_labels: ArrayLike,
    normalize: Callable[[Tensor], Tensor] = F.normalize,
) -> float:
    """Returns the share of queries whose nearest class mean is that of their class.

    A class mean is the mean of the references of a class, normalized. Means are compared by
    Euclidean distance; of equal distances, the class with the lowest label counts. A mean of zero
    has no direction: L2 normalization leaves it at zero.

    Args:
        embeddings: B×D queries, a tensor, an array, a list or a table of pandas.
        labels: B integers or strings.
        reference_embeddings: N×D, of all classes that may be predicted.
        reference_labels: N integers or strings.
        normalize: normalization of the means (C×D), which is that of the embeddings.

    Returns:
        The accuracy, 0–1. Queries of a class without references are never right.

    Raises:
        ValueError: embeddings or labels are invalid.
    """
    predicted_B, query_B = predict_by_class_means(
        embeddings, labels, reference_embeddings, reference_labels, normalize
    )
    return float((predicted_B == query_B).double().mean())


def predict_by_class_means(
    embeddings: ArrayLike,
    labels: ArrayLike,
    reference_embeddings: ArrayLike,
    reference_labels: ArrayLike,
    normalize: Callable[[Tensor], Tensor] = F.normalize,
) -> tuple[Tensor, Tensor]:
    """Returns the class of the nearest mean of each query (B), and `labels` as a tensor (B).

    Args and errors are those of `class_mean_accuracy`.
    """
    query, reference, query_B, reference_N = check_labeled(
        embeddings, labels, reference_embeddings, reference_labels
    )
    assert reference is not None
    check_one_dimension(query, reference, "embeddings and reference_embeddings")
    known_C, positions_N, counts_C = reference_N.unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(known_C), reference.shape[1], dtype=torch.float64, device=query.device)
    sums.index_add_(0, positions_N, reference.double())
    means = normalize(sums / counts_C[:, None])
    nearest_B = nearest_neighbors(query.double(), means, k=1).indices[:, 0]
    return known_C[nearest_B], query_B


def neighbor_accuracy(
    embeddings: ArrayLike,
    labels: ArrayLike,
    reference_embeddings: ArrayLike,
    reference_labels: ArrayLike,
    neighbors: int = NEIGHBORS,
) -> float:
    """Returns the share of queries whose class most of their nearest references have.

    Of classes with equal votes, that of the nearest reference counts; of references at equal
    distances, the first ones are neighbors.

    Args:
        embeddings: B×D queries, a tensor, an array, a list or a table of pandas.
        labels: B integers or strings.
        reference_embeddings: N×D.
        reference_labels: N integers or strings.
        neighbors: references that vote, 1 or more; with fewer references, all of them.

    Returns:
        The accuracy, 0–1.

    Raises:
        ValueError: embeddings, labels or the number of neighbors are invalid.
    """
    predicted_B, query_B = predict_by_neighbors(
        embeddings, labels, reference_embeddings, reference_labels, neighbors
    )
    return float((predicted_B == query_B).double().mean())


def predict_by_neighbors(
    embeddings: ArrayLike,
    labels: ArrayLike,
    reference_embeddings: ArrayLike,
    reference_labels: ArrayLike,
    neighbors: int = NEIGHBORS,
) -> tuple[Tensor, Tensor]:
    """Returns the class of most neighbors of each query (B), and `labels` as a tensor (B).

    Args and errors are those of `neighbor_accuracy`.
    """
    check_counts([neighbors], "neighbors")
    query, reference, query_B, reference_N = check_labeled(
        embeddings, labels, reference_embeddings, reference_labels
    )
    assert reference is not None
    check_one_dimension(query, reference, "embeddings and reference_embeddings")
    k = min(neighbors, len(reference))
    classes_Bk = reference_N[nearest_neighbors(query, reference, k=k).indices]
    votes_Bk = torch.zeros_like(classes_Bk)
    for other_B in classes_Bk.unbind(dim=1):
        votes_Bk += classes_Bk == other_B[:, None]
    rank_k = torch.arange(k, device=query.device)
    first_B = (votes_Bk * k - rank_k).argmax(dim=1)  # most votes, then the lowest rank
    return classes_Bk.gather(1, first_B[:, None])[:, 0], query_B
