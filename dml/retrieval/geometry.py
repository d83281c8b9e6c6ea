"""Geometry of embeddings: the measures that the papers report in addition to retrieval.

All measures are computed in float64, in tiles of bounded memory, for the embeddings as passed:
normalize them first if the measure of a paper is defined on the sphere.

Shapes: N items, D dimensions, P proxies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dml.retrieval.exact.search import nearest_neighbors
from dml.retrieval.inputs import (
    ArrayLike,
    check_embeddings,
    check_labels,
    check_one_dimension,
    number_labels,
)
from dml.retrieval.pairs import (
    check_at_least_two,
    direct_distances,
    distance_tiles,
    embeddings_by_class,
    items_by_label,
)

CLUSTERING_SEED = 0  # of k-means, so that the same embeddings have the same scores


def alignment(embeddings: ArrayLike, labels: ArrayLike) -> float:
    """Returns the mean ‖f − f'‖² over all pairs of items of the same class (Metrix, §4.3).

    Computed as Σ_{i,j∈c} ‖f_i − f_j‖² = 2 n_c Σ_{i∈c} ‖f_i − mean_c‖², without listing pairs.

    Args:
        embeddings: N×D.
        labels: N integers or strings.

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


def uniformity(embeddings: ArrayLike, t: float = 2.0) -> float:
    """Returns log E exp(−t ‖f − f'‖²) over all pairs of items (Metrix, §4.3, with t = 2).

    Args:
        embeddings: N×D, N ≥ 2.
        t: positive.

    Returns:
        A value ≤ 0; lower is more uniform.

    Raises:
        ValueError: invalid embeddings, or a single item.
    """
    points = check_at_least_two(embeddings)
    parts = []
    for _, _, squared in distance_tiles(points):
        parts.append(squared.mul_(-t).flatten().logsumexp(dim=0))
    pairs = len(points) * (len(points) - 1) // 2
    return float(torch.stack(parts).logsumexp(dim=0)) - math.log(pairs)


def utilization(queries: ArrayLike, training: Tensor | NDArray[Any] | Iterable[ArrayLike]) -> float:
    """Returns the mean squared distance of queries to their nearest training embedding.

    This is u(Q, X) of Metrix, §4.3.

    Args:
        queries: B×D test embeddings.
        training: N×D training embeddings, or an iterable of such matrices (such as epochs of
            mixed embeddings), which are processed one at a time.

    Returns:
        A value ≥ 0; lower is better.

    Raises:
        ValueError: invalid embeddings, or no training embeddings.
    """
    nearest: Tensor | None = None
    parts = [training] if isinstance(training, Tensor | np.ndarray) else training
    for part in parts:
        distances = nearest_neighbors(queries, part, k=1).distances.double().squeeze(1)
        nearest = distances if nearest is None else torch.minimum(nearest, distances)
    if nearest is None:
        raise ValueError("training is empty: no embeddings to compare with")
    return float(nearest.square().mean())


def inter_class_distance(embeddings: ArrayLike, labels: ArrayLike) -> float:
    """Returns the mean ‖f − f'‖ over all pairs of items of different classes (CCP, Fig. 7).

    Args:
        embeddings: N×D.
        labels: N integers or strings.

    Raises:
        ValueError: invalid embeddings or labels, or a single class.
    """
    points = check_at_least_two(embeddings)
    classes = check_labels(labels, len(points), "labels").to(points.device)
    total, pairs = 0.0, 0
    for rows, columns, squared in distance_tiles(points, keep_shape=True):
        different = classes[rows, None] != classes[columns]
        if rows == columns:
            different.triu_(diagonal=1)
        total += float(squared.sqrt_().mul_(different).sum())
        pairs += int(different.sum())
    if not pairs:
        raise ValueError("labels: a single class has no inter-class distance")
    return total / pairs


def proxy_alignment(
    proxies: ArrayLike, proxy_labels: ArrayLike, embeddings: ArrayLike, labels: ArrayLike
) -> float:
    """Returns W2, the distance of proxies to the items of their class (PFML, Table 3).

    Per class, this is the mean distance of the pairs in the optimal assignment of proxies to
    distinct items, of which there are min(k, n_c). The result is the mean over classes with both.

    Args:
        proxies: P×D.
        proxy_labels: P integers or strings.
        embeddings: N×D.
        labels: N integers or strings.

    Raises:
        ValueError: invalid arguments, or no class with proxies and items.
    """
    from scipy.optimize import linear_sum_assignment

    centers = check_embeddings(proxies, "proxies")
    points = check_embeddings(embeddings, "embeddings")
    of_centers, of_points = number_labels(
        {"proxy_labels": (proxy_labels, len(centers)), "labels": (labels, len(points))}
    )
    check_one_dimension(centers, points, "proxies and embeddings")
    shared = sorted(set(of_centers.tolist()) & set(of_points.tolist()))
    if not shared:
        raise ValueError("labels: no class has both proxies and items")
    order_of_centers, order = items_by_label(of_centers), items_by_label(of_points)
    means = []
    for label in shared:
        cost = direct_distances(
            centers[order_of_centers[label]].double(), points[order[label]].double()
        ).cpu()
        means.append(float(cost[linear_sum_assignment(cost.numpy())].mean()))
    return sum(means) / len(means)


def cluster_agreement(
    embeddings: ArrayLike, labels: ArrayLike, names: Sequence[str]
) -> dict[str, float]:
    """Returns how well k-means clusters agree with the classes, as many clusters as classes.

    NMI is 2·I/(H + H'), AMI the mutual information adjusted for chance (Vinh et al., Information
    Theoretic Measures for Clusterings Comparison, 2010), both by scikit-learn.

    Args:
        embeddings: N×D, on any device.
        labels: N integers or strings.
        names: `nmi`, `ami`, both or none.

    Returns:
        Scores by name; 1 for clusters that are the classes.
    """
    if not names:
        return {}
    from sklearn.cluster import KMeans  # late: it takes a second to import
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    scores = {"nmi": normalized_mutual_info_score, "ami": adjusted_mutual_info_score}
    points = check_embeddings(embeddings, "embeddings")
    classes = check_labels(labels, len(points), "labels")
    means = KMeans(int(classes.unique().numel()), n_init=1, random_state=CLUSTERING_SEED)
    clusters = means.fit_predict(points.cpu().numpy())
    return {name: float(scores[name](classes.cpu().numpy(), clusters)) for name in names}
