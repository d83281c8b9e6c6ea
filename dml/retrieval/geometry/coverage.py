"""Coverage: the distance of items from a few points, picked or learned, of their class.

Shapes: N points, D dimensions, M points already covered, k picks, P proxies.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.retrieval.geometry.classes import embeddings_by_class, items_by_label
from dml.retrieval.inputs import check_counts, check_embeddings, check_labels, check_one_dimension


def proxy_alignment(
    proxies: Tensor, proxy_labels: Tensor, embeddings: Tensor, labels: Tensor
) -> float:
    """Computes W2, the distance of proxies from the items of their class (PFML, Table 3).

    Per class the mean distance of proxies to distinct items under the best assignment; with fewer
    items than proxies, of the min(k, n_c) best pairs. Mean over the classes that have both.

    Args:
        proxies: P×D.
        proxy_labels: P integers.
        embeddings: N×D.
        labels: N integers.

    Raises:
        ValueError: invalid arguments, or no class with proxies and items.
    """
    from scipy.optimize import linear_sum_assignment

    proxies = check_embeddings(proxies, "proxies")
    check_labels(proxy_labels, len(proxies), "proxy_labels")
    embeddings = check_embeddings(embeddings, "embeddings")
    check_labels(labels, len(embeddings), "labels")
    check_one_dimension(proxies, embeddings, "proxies and embeddings")
    shared = sorted(set(proxy_labels.tolist()) & set(labels.tolist()))
    if not shared:
        raise ValueError("labels: no class has both proxies and items")
    order_of_proxies, order = items_by_label(proxy_labels), items_by_label(labels)
    means = []
    for label in shared:
        cost = _distances(
            proxies[order_of_proxies[label]].double(), embeddings[order[label]].double()
        ).cpu()
        means.append(float(cost[linear_sum_assignment(cost.numpy())].mean()))
    return sum(means) / len(means)


def greedy_k_center(pool: Tensor, k: int, covered: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Picks k points that cover the pool: each time the one farthest from all centers so far.

    Its radius is at most twice the best one (Gonzalez, 1985). Picks are distinct even among
    duplicates; ties go to the lower index.

    Args:
        pool: N×D points.
        k: picks, 1 to N.
        covered: M×D centers chosen before (CCP's proxies of the last stage, Alg. 2). Without them
            the first pick is the point nearest to the pool's mean.

    Returns:
        Indices of the picks (k) in the order picked, and the covering radius after each (k,
        float64, never growing): the largest distance of a pool point to its nearest center.

    Raises:
        ValueError: invalid points or k out of range.
    """
    pool = check_embeddings(pool, "pool").double()
    check_counts([k], "k")
    if k > len(pool):
        raise ValueError(f"k must lie between 1 and the {len(pool)} points of the pool, got {k}")
    if covered is None:
        nearest = -_distances(pool.mean(dim=0, keepdim=True), pool)[0]
        reached = torch.full_like(nearest, torch.inf)
    else:
        centers = check_embeddings(covered, "covered").double()
        check_one_dimension(pool, centers, "pool and covered")
        nearest = reached = torch.stack([(pool - c).norm(dim=1) for c in centers]).amin(dim=0)
    is_picked = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    picks, radii = [], []
    for _ in range(k):
        pick = nearest.masked_fill(is_picked, -torch.inf).argmax()
        is_picked[pick] = True
        nearest = reached = torch.minimum(reached, (pool - pool[pick]).norm(dim=1))
        picks.append(pick)
        radii.append(reached.max())
    return torch.stack(picks), torch.stack(radii)


def covering_radius(embeddings: Tensor, labels: Tensor) -> float:
    """Computes the greedy k-center radius, mean over k = 1..n_c and over classes (CCP, Fig. 7).

    Args:
        embeddings: N×D.
        labels: N integers.

    Returns:
        A distance ≥ 0; with a lower one fewer samples represent a class.

    Raises:
        ValueError: invalid embeddings or labels.
    """
    means = [
        float(greedy_k_center(members, len(members))[1].mean())
        for members in embeddings_by_class(embeddings, labels)
    ]
    return sum(means) / len(means)


def _distances(a_nD: Tensor, b_mD: Tensor) -> Tensor:
    """Returns Euclidean distances (n×m) by direct differences."""
    return torch.cdist(a_nD, b_mD, compute_mode="donot_use_mm_for_euclid_dist")
