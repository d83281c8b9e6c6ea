"""Spread: distances of items from those of their class, of other classes and from all others.

Shapes: N items, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from dml.retrieval.geometry.classes import embeddings_by_class
from dml.retrieval.inputs import check_embeddings, check_labels
from dml.retrieval.knn import nearest_neighbors

TILE = 1024


def alignment(embeddings: Tensor, labels: Tensor) -> float:
    """Computes the mean ‖f − f'‖² over all pairs of items of one class (Metrix, §4.3).

    Uses Σ_{i,j∈c} ‖f_i − f_j‖² = 2 n_c Σ_{i∈c} ‖f_i − mean_c‖², so no pairs are formed.

    Args:
        embeddings: N×D.
        labels: N integers.

    Returns:
        A value ≥ 0, for unit vectors ≤ 4; lower is better.

    Raises:
        ValueError: invalid embeddings or labels, or no class with two items.
    """
    total, pairs = 0.0, 0
    for members in embeddings_by_class(embeddings, labels):
        count = len(members)
        total += 2 * count * float((members - members.mean(dim=0)).square().sum())
        pairs += count * (count - 1)
    if not pairs:
        raise ValueError("labels: no class has two items, so no pair can be aligned")
    return total / pairs


def uniformity(embeddings: Tensor, t: float = 2.0) -> float:
    """Computes log E exp(−t ‖f − f'‖²) over all pairs of items (Metrix, §4.3, with t = 2).

    Args:
        embeddings: N×D, N ≥ 2.
        t: positive.

    Returns:
        A value ≤ 0; lower is more uniform.

    Raises:
        ValueError: invalid embeddings, or a single item.
    """
    embeddings = _check_at_least_two(embeddings)
    parts = [squared.mul_(-t).flatten().logsumexp(dim=0) for _, _, squared in _pairs(embeddings)]
    pairs = len(embeddings) * (len(embeddings) - 1) // 2
    return float(torch.stack(parts).logsumexp(dim=0)) - math.log(pairs)


def utilization(queries: Tensor, training: Tensor | Iterable[Tensor]) -> float:
    """Computes the mean squared distance of queries to their nearest training embedding.

    It is u(Q, X) of Metrix, §4.3: the distance of test items from what training explored.

    Args:
        queries: B×D test embeddings.
        training: N×D training embeddings, or an iterable of such matrices (epochs of mixed
            embeddings), of which one at a time is in memory.

    Returns:
        A value ≥ 0; lower is better.

    Raises:
        ValueError: invalid embeddings, or no training embeddings.
    """
    nearest: Tensor | None = None
    for part in [training] if isinstance(training, Tensor) else training:
        distances = nearest_neighbors(queries, part, k=1).distances.double().squeeze(1)
        nearest = distances if nearest is None else torch.minimum(nearest, distances)
    if nearest is None:
        raise ValueError("training is empty: no embeddings to compare with")
    return float(nearest.square().mean())


def inter_class_distance(embeddings: Tensor, labels: Tensor) -> float:
    """Computes the mean ‖f − f'‖ over all pairs of items of different classes (CCP, Fig. 7).

    Args:
        embeddings: N×D.
        labels: N integers.

    Raises:
        ValueError: invalid embeddings or labels, or a single class.
    """
    embeddings = _check_at_least_two(embeddings)
    check_labels(labels, len(embeddings), "labels")
    labels = labels.to(embeddings.device)
    total, pairs = 0.0, 0
    for rows, columns, squared in _pairs(embeddings, keep_shape=True):
        different = labels[rows, None] != labels[columns]
        if rows == columns:
            different.triu_(diagonal=1)
        total += float(squared.sqrt_().mul_(different).sum())
        pairs += int(different.sum())
    if not pairs:
        raise ValueError("labels: a single class has no inter-class distance")
    return total / pairs


def _check_at_least_two(embeddings: Tensor) -> Tensor:
    embeddings = check_embeddings(embeddings, "embeddings")
    if len(embeddings) < 2:
        raise ValueError("embeddings: a single item has no pairs")
    return embeddings


def _pairs(
    embeddings_ND: Tensor, *, keep_shape: bool = False
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yields tiles of squared distances that contain every pair once.

    A tile on the diagonal is reduced to its pairs i < j, unless `keep_shape` is set.
    """
    center = embeddings_ND.mean(dim=0, dtype=torch.float64)
    starts = range(0, len(embeddings_ND), TILE)
    for row in starts:
        rows_nD = embeddings_ND[row : row + TILE].double() - center
        for column in starts[row // TILE :]:
            columns_cD = embeddings_ND[column : column + TILE].double() - center
            squared = torch.addmm(columns_cD.square().sum(dim=1), rows_nD, columns_cD.T, alpha=-2)
            squared.add_(rows_nD.square().sum(dim=1)[:, None]).clamp_(min=0)
            if row == column and not keep_shape:
                above = torch.ones_like(squared, dtype=torch.bool).triu_(diagonal=1)
                squared = squared[above]
            if squared.numel():
                yield slice(row, row + TILE), slice(column, column + TILE), squared
