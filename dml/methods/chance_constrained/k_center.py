"""How the next proxies of ccp are picked: greedy k-center within the pool of each class.

Shapes: C classes, n pool points and m centers a class, k picks, D embedding dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

CLASSES_AT_A_TIME = 1024


def pool_size_per_class(pool_size: int, proxies_per_class: int) -> int:
    """Images to draw of each class: b, or k where the budget b leaves no choice (b ≤ k)."""
    return max(pool_size, proxies_per_class)


@torch.no_grad()
def embed_pool(
    embedder: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int
) -> Tensor:
    """C×n×D: the pool's embeddings before the normalizer, in evaluation mode.

    Args:
        embedder: its mode is put back.
        batches: images and labels, class by class, equally many of each.
        num_classes: C.
    """
    was_training = embedder.training
    embedder.eval()
    parts = [embedder.unnormalized(images) for images, _ in batches]  # type: ignore[operator]
    embedder.train(was_training)
    pool = torch.cat(parts)
    return pool.view(num_classes, -1, pool.shape[1])


def k_center_per_class(pool_CnD: Tensor, centers_CmD: Tensor, k: int) -> Tensor:
    """Greedy k-center (ccp, Alg. 2) for all classes at once.

    k times over, picks the point of the pool that is farthest from its nearest center, the centers
    given and the picks so far alike. Picks are distinct points of the pool, even where it holds
    duplicates; ties go to the lower index.

    Args:
        pool_CnD: points to pick from.
        centers_CmD: what covers each class already, m ≥ 1.
        k: 1..n.

    Returns:
        C×k indices of points, in the order picked.

    Raises:
        ValueError: k is out of range.
    """
    n = pool_CnD.shape[1]
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and the {n} points of a pool, got {k}")
    chunks = zip(
        pool_CnD.split(CLASSES_AT_A_TIME), centers_CmD.split(CLASSES_AT_A_TIME), strict=True
    )
    return torch.cat([_k_center(pool, centers, k) for pool, centers in chunks])


def _k_center(pool_CnD: Tensor, centers_CmD: Tensor, k: int) -> Tensor:
    nearest_Cn = _to_nearest_center(pool_CnD, centers_CmD)
    taken_Cn = torch.zeros_like(nearest_Cn, dtype=torch.bool)
    picks = []
    for _ in range(k):
        pick_C = nearest_Cn.masked_fill(taken_Cn, -torch.inf).argmax(dim=1)
        taken_Cn.scatter_(1, pick_C[:, None], True)
        picked_C1D = picked(pool_CnD, pick_C[:, None])
        nearest_Cn = torch.minimum(nearest_Cn, (pool_CnD - picked_C1D).norm(dim=2))
        picks.append(pick_C)
    return torch.stack(picks, dim=1)


def picked(pool_CnD: Tensor, picks_Ck: Tensor) -> Tensor:
    """C×k×D: the points that the indices name."""
    return pool_CnD.gather(1, picks_Ck[:, :, None].expand(-1, -1, pool_CnD.shape[2]))


def mean_covering_radius(pool_CnD: Tensor, centers_CmD: Tensor) -> float:
    """How far a class's farthest pool point is from its nearest center, on average over classes."""
    chunks = zip(
        pool_CnD.split(CLASSES_AT_A_TIME), centers_CmD.split(CLASSES_AT_A_TIME), strict=True
    )
    radii = [_to_nearest_center(pool, centers).amax(dim=1) for pool, centers in chunks]
    return float(torch.cat(radii).double().mean())


def _to_nearest_center(pool_CnD: Tensor, centers_CmD: Tensor) -> Tensor:
    """C×n distances, center by center: C×n×m×D at once would be large."""
    nearest_Cn = pool_CnD.new_full(pool_CnD.shape[:2], torch.inf)
    for center in range(centers_CmD.shape[1]):
        distance_Cn = (pool_CnD - centers_CmD[:, center, None]).norm(dim=2)
        nearest_Cn = torch.minimum(nearest_Cn, distance_Cn)
    return nearest_Cn
