"""Loss over all triplets of a batch, or of a batch and references, without listing them.

Shapes: B images in a batch, D embedding dimensions, R references, T rows of a tile.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.losses.arguments import check_finite
from dml.losses.distances import distances
from dml.losses.metric_loss import PairLoss, Pairs

TILE = 2**22  # distances sorted at a time


class AllTripletsLoss(PairLoss):
    """Triplet margin loss over all or mined triplets: the mean of non-zero [r_ap − r_an + m]_+.

    Equal to pytorch-metric-learning's TripletMarginLoss on all triplets, but in time
    O(B·R·log R) and memory O(B·R), independent of the number of triplets, which is millions per
    batch with the proxies of Stanford Online Products. r is the Euclidean distance of the given
    vectors, which are not normalized here. Mined triplets are used as listed; mined pairs are
    combined to all triplets with a common anchor.

    Args:
        margin: m, a Euclidean distance.

    Raises:
        ValueError: the margin is not a finite number.
    """

    def __init__(self, margin: float = 0.05) -> None:
        super().__init__()
        self.margin = check_finite("margin", margin)

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        r_BR = distances(x_BD, ref_RD)
        if pairs.mined is not None and len(pairs.mined) == 3:
            a, p, n = pairs.mined
            excess_T = (r_BR[a, p] - r_BR[a, n] + self.margin).relu()
            return excess_T.sum() / (excess_T > 0).sum().clamp_min(1)
        positive_BR, negative_BR = pairs.masks()
        rows = max(1, TILE // r_BR.shape[1])
        parts = zip(
            r_BR.detach().split(rows), positive_BR.split(rows), negative_BR.split(rows), strict=True
        )
        weights = [count_triplets(*part, self.margin) for part in parts]
        weight_BR = torch.cat([weight_TR for weight_TR, _ in weights])
        triplets = sum((count for _, count in weights), r_BR.new_zeros(()))
        # For a fixed set of violated triplets the loss is linear in the distances, with each
        # distance counted once per triplet.
        total = (weight_BR * r_BR).sum() + self.margin * triplets
        return total / triplets.clamp_min(1)


def count_triplets(
    r_TR: Tensor, positive_TR: Tensor, negative_TR: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Returns the counts of violated triplets per pair, as positive minus as negative, and in all.

    A triplet is violated if r_ap + m > r_an.
    """
    reach_TR = torch.where(positive_TR, r_TR + margin, -torch.inf)
    far_TR = torch.where(negative_TR, r_TR, torch.inf)
    as_positive_TR = torch.searchsorted(far_TR.sort(dim=1).values, reach_TR)
    reaching_TR = torch.searchsorted(reach_TR.sort(dim=1).values, far_TR, right=True)
    as_negative_TR = torch.where(negative_TR, r_TR.shape[1] - reaching_TR, 0)
    return (as_positive_TR - as_negative_TR).to(r_TR.dtype), as_positive_TR.sum().to(r_TR.dtype)
