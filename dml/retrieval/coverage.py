"""How few items cover the others: greedy k-center selection and covering radius (CCP).

Both are computed in float64 for the embeddings as passed: normalize them first if the measure of a
paper is defined on the sphere.

Shapes: N items, D dimensions, M points already covered, k picks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.retrieval.inputs import check_counts, check_embeddings, check_one_dimension
from dml.retrieval.pairs import direct_distances, embeddings_by_class


def greedy_k_center(pool: Tensor, k: int, covered: Tensor | None = None) -> tuple[Tensor, Tensor]:
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
    pool = check_embeddings(pool, "pool").double()
    check_counts([k], "k")
    if k > len(pool):
        raise ValueError(f"k must lie between 1 and the {len(pool)} points of the pool, got {k}")
    if covered is None:
        nearest = -direct_distances(pool.mean(dim=0, keepdim=True), pool)[0]
        distance = torch.full_like(nearest, torch.inf)
    else:
        centers = check_embeddings(covered, "covered").double()
        check_one_dimension(pool, centers, "pool and covered")
        nearest = distance = torch.stack([(pool - c).norm(dim=1) for c in centers]).amin(dim=0)
    is_picked = torch.zeros(len(pool), dtype=torch.bool, device=pool.device)
    picks, radii = [], []
    for _ in range(k):
        pick = nearest.masked_fill(is_picked, -torch.inf).argmax()
        is_picked[pick] = True
        nearest = distance = torch.minimum(distance, (pool - pool[pick]).norm(dim=1))
        picks.append(pick)
        radii.append(distance.max())
    return torch.stack(picks), torch.stack(radii)


def covering_radius(embeddings: Tensor, labels: Tensor) -> float:
    """Returns the greedy k-center radius, averaged over k = 1..n_c and over classes (CCP, Fig. 7).

    Args:
        embeddings: N×D.
        labels: N integers.

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
