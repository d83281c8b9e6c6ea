"""All triplets of a batch, or of a batch and references, without ever listing them.

Shapes: B images in a batch, D embedding dimensions, R references, T rows of a tile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.losses.base import PairLoss, finite
from dml.losses.distances import distances
from dml.losses.pairwise import pair_masks

TILE = 2**22  # distances that are sorted at a time


class AllTripletsLoss(PairLoss):
    """Triplet margin over all triplets: the mean over non-zero [r_ap − r_an + m]_+.

    Equal to pytorch-metric-learning's TripletMarginLoss on all triplets, but in time
    O(B·R·log R) and memory O(B·R) instead of the number of triplets, which against the proxies of
    Stanford Online Products is millions a batch, found there among B·R² candidates. r is the
    Euclidean distance of the vectors as given; normalize them first where they should be.

    Args:
        margin: m, a Euclidean distance.

    Raises:
        ValueError: the margin is not a finite number.
    """

    def __init__(self, margin: float = 0.05) -> None:
        super().__init__()
        self.margin = finite("margin", margin)

    def pair_loss(
        self, x_BD: Tensor, labels_B: Tensor, ref_RD: Tensor, labels_R: Tensor, among_itself: bool
    ) -> Tensor:
        """Returns the loss of checked arguments, float32 or float64."""
        r_BR = distances(x_BD, ref_RD)
        positive_BR, negative_BR = pair_masks(labels_B, labels_R, among_itself)
        rows = max(1, TILE // r_BR.shape[1])
        parts = zip(
            r_BR.detach().split(rows), positive_BR.split(rows), negative_BR.split(rows), strict=True
        )
        weights = [_signed_counts(*part, self.margin) for part in parts]
        weight_BR = torch.cat([weight_TR for weight_TR, _ in weights])
        triplets = sum((count for _, count in weights), r_BR.new_zeros(()))
        # The loss is linear in the distances as long as the same triplets cost something, and a
        # distance counts once for each of them.
        total = (weight_BR * r_BR).sum() + self.margin * triplets
        return total / triplets.clamp_min(1)


def _signed_counts(
    r_TR: Tensor, positive_TR: Tensor, negative_TR: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """In how many violated triplets each pair is: above 0 as positive, below 0 as negative.

    Also returns the number of violated triplets. A triplet is violated if r_ap + m > r_an.
    """
    reach_TR = torch.where(positive_TR, r_TR + margin, -torch.inf)
    far_TR = torch.where(negative_TR, r_TR, torch.inf)
    as_positive_TR = torch.searchsorted(far_TR.sort(dim=1).values, reach_TR)
    reaching_TR = torch.searchsorted(reach_TR.sort(dim=1).values, far_TR, right=True)
    as_negative_TR = torch.where(negative_TR, r_TR.shape[1] - reaching_TR, 0)
    return (as_positive_TR - as_negative_TR).to(r_TR.dtype), as_positive_TR.sum().to(r_TR.dtype)
