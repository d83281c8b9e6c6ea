"""Greedy k-center selection in the pool of each class, which picks the next proxies of ccp.

Shapes: C classes, n pool points and m centers per class, k picks, D embedding dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import length_hint

import torch
from torch import Tensor

from dml.core.progress import show_progress
from dml.models.embedder import Embedder
from dml.retrieval.coverage import pick_farthest

CLASSES_PER_CHUNK = 1024


def pool_size_per_class(pool_size: int, proxies_per_class: int) -> int:
    """Returns the number of images to draw per class: max(b, k)."""
    return max(pool_size, proxies_per_class)


@torch.no_grad()
def embed_pool(
    embedder: Embedder, batches: Iterable[tuple[Tensor, Tensor]], num_classes: int
) -> Tensor:
    """Returns the embeddings of the pool before the normalizer, in evaluation mode (C×n×D).

    Args:
        embedder: the network; its mode is restored.
        batches: images and labels, class by class, with equally many images of each class.
        num_classes: C.
    """
    was_training = embedder.training
    embedder.eval()
    shown = show_progress(batches, "embedding the pool, batch", length_hint(batches) or None)
    parts = [embedder.unnormalized(images) for images, _ in shown]
    embedder.train(was_training)
    pool = torch.cat(parts)
    return pool.view(num_classes, -1, pool.shape[1])


def pick_k_centers(pool_CnD: Tensor, centers_CmD: Tensor, k: int) -> Tensor:
    """Returns the greedy k-center selection (ccp, Alg. 2) of each class.

    Picks, k times, the point of the pool that is farthest from its nearest center; picked points
    become centers. Picks are distinct indices, even if the pool contains duplicates; ties go to the
    lower index.

    Args:
        pool_CnD: points to pick from.
        centers_CmD: initial centers of each class, m ≥ 1.
        k: 1..n.

    Returns:
        C×k indices of points, in the order of picking.

    Raises:
        ValueError: k is out of range.
    """
    n = pool_CnD.shape[1]
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and the {n} points of a pool, got {k}")
    chunks = zip(
        pool_CnD.split(CLASSES_PER_CHUNK), centers_CmD.split(CLASSES_PER_CHUNK), strict=True
    )
    picks = []
    for pool, centers in chunks:
        picks.append(pick_farthest(pool, _distance_to_nearest_center(pool, centers), k)[0])
    return torch.cat(picks)


def mean_covering_radius(pool_CnD: Tensor, centers_CmD: Tensor) -> float:
    """Returns the largest distance of a pool point to its nearest center, averaged over classes."""
    chunks = zip(
        pool_CnD.split(CLASSES_PER_CHUNK), centers_CmD.split(CLASSES_PER_CHUNK), strict=True
    )
    radii = [_distance_to_nearest_center(pool, centers).amax(dim=1) for pool, centers in chunks]
    return float(torch.cat(radii).double().mean())


def _distance_to_nearest_center(pool_CnD: Tensor, centers_CmD: Tensor) -> Tensor:
    """Returns distances C×n, center by center, since C×n×m×D differences would be large."""
    nearest_Cn = pool_CnD.new_full(pool_CnD.shape[:2], torch.inf)
    for center in range(centers_CmD.shape[1]):
        distance_Cn = (pool_CnD - centers_CmD[:, center, None]).norm(dim=2)
        nearest_Cn = torch.minimum(nearest_Cn, distance_Cn)
    return nearest_Cn
