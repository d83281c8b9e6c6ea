"""How few items cover the others: greedy k-center selection and covering radius (CCP).

Both are computed in float64 for the embeddings as passed: normalize them first if the measure of a
paper is defined on the sphere.

Shapes: N items, D dimensions, M points already covered, k picks; C pools of n points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.retrieval.inputs import ArrayLike, check_counts, check_embeddings, check_one_dimension
from dml.retrieval.pairs import direct_distances, embeddings_by_class


def greedy_k_center(
    pool: ArrayLike, k: int, covered: ArrayLike | None = None
) -> tuple[Tensor, Tensor]:
    """Returns the greedy k-center selection: each pick is the point farthest from all centers.

    The covering radius is at most twice the optimal one (Gonzalez, 1985). Picks have distinct
    indices even if points are equal; ties go to the lower index.

    Args:
        pool: N×D points.
        k: number of picks, 1 to N.
        covered: M×D initial centers (CCP's proxies of the previous stage, Alg. 2). Without them
            the first pick is the point nearest to the pool's mean.

    Returns:
        Indices of the picks (k) in the order of picking, and the covering radius after each (k,
        float64, non-increasing): the largest distance of a pool point to its nearest center.

    Raises:
        ValueError: invalid points or k out of range.
    """
    points = check_embeddings(pool, "pool").double()
    check_counts([k], "k")
    if k > len(points):
        raise ValueError(f"k must lie between 1 and the {len(points)} points of the pool, got {k}")
    if covered is None:
        nearest = -direct_distances(points.mean(dim=0, keepdim=True), points)[0]
        distance = torch.full_like(nearest, torch.inf)
    else:
        centers = check_embeddings(covered, "covered").double()
        check_one_dimension(points, centers, "pool and covered")
        nearest = distance = torch.stack([(points - c).norm(dim=1) for c in centers]).amin(dim=0)
    picks, radii = pick_farthest(points[None], distance[None], k, nearest[None])
    return picks[0], radii[0]


def pick_farthest(
    pool_CnD: Tensor, distance_Cn: Tensor, k: int, priority_Cn: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns k picks from each of several pools, and the covering radius after each (both C×k).

    Args:
        pool_CnD: the points of C pools.
        distance_Cn: of each point to its nearest center, ∞ without centers.
        k: number of picks, 1 to n.
        priority_Cn: the first pick is the point with the highest priority; None: the distances.
    """
    picks, radii = [], []
    is_picked_Cn = torch.zeros_like(distance_Cn, dtype=torch.bool)
    priority_Cn = distance_Cn if priority_Cn is None else priority_Cn
    for _ in range(k):
        pick_C1 = priority_Cn.masked_fill(is_picked_Cn, -torch.inf).argmax(dim=1, keepdim=True)
        is_picked_Cn.scatter_(1, pick_C1, True)
        center_C1D = gather_points(pool_CnD, pick_C1)
        distance_Cn = torch.minimum(distance_Cn, (pool_CnD - center_C1D).norm(dim=2))
        priority_Cn = distance_Cn
        picks.append(pick_C1)
        radii.append(distance_Cn.amax(dim=1, keepdim=True))
    return torch.cat(picks, dim=1), torch.cat(radii, dim=1)


def gather_points(pool_CnD: Tensor, picks_Ck: Tensor) -> Tensor:
    """Returns the points at the given indices (C×k×D)."""
    return pool_CnD.gather(1, picks_Ck[:, :, None].expand(-1, -1, pool_CnD.shape[2]))


def covering_radius(embeddings: ArrayLike, labels: ArrayLike) -> float:
    """Returns the greedy k-center radius, averaged over k = 1..n_c and over classes (CCP, Fig. 7).

    Args:
        embeddings: N×D.
        labels: N integers or strings.

    Returns:
        A distance ≥ 0; the lower it is, the fewer samples represent a class.

    Raises:
        ValueError: invalid embeddings or labels.
    """
    means = [
        float(greedy_k_center(members, len(members))[1].mean())
        for members in embeddings_by_class(embeddings, labels)
    ]
    return sum(means) / len(means)
