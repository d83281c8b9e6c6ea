"""C1 and C2: the pair losses of chance-constrained proxies (ccp), for batches and references.

Shapes: B images in a batch, D embedding dimensions, R references.
s is the inner product and r the Euclidean distance of vectors clipped to the unit ball.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.losses.arguments import check_finite
from dml.losses.distances import clip_to_ball, distances
from dml.losses.metric_loss import PairLoss, Pairs


class C1Loss(PairLoss):
    """C1 of ccp: hinges on inner products, summed over pairs, averaged over the batch.

    (1/B) Σ_i ( Σ_positive [1 − s − ε]_+ + Σ_negative [s − m]_+ )

    Args:
        epsilon: ε, slack of positive pairs.
        margin: m, inner product below which the term of a negative pair is zero.

    Raises:
        ValueError: an argument is not a finite number.

    Example:
        >>> loss = C1Loss()
        >>> embeddings = torch.eye(4)[[0, 1, 0, 2]]
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> round(loss(embeddings, labels).item(), 3)
        1.25
    """

    def __init__(self, epsilon: float = 1e-5, margin: float = 0.5) -> None:
        super().__init__()
        self.epsilon = check_finite("epsilon", epsilon)
        self.margin = check_finite("margin", margin)

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        s_BR = clip_to_ball(x_BD) @ clip_to_ball(ref_RD).T
        positive_BR, negative_BR = pairs.masks()
        pull = torch.where(positive_BR, (1 - self.epsilon - s_BR).relu(), 0).sum()
        push = torch.where(negative_BR, (s_BR - self.margin).relu(), 0).sum()
        return (pull + push) / len(x_BD)


class C2Loss(PairLoss):
    """C2 of ccp: hinges on Euclidean distances, averaged over the pairs with a non-zero term.

    mean over non-zero [r − m⁺]_+ of positive pairs + mean over non-zero [m⁻ − r]_+ of negative
    pairs; the defaults are the values for CUB.

    Args:
        positive_margin: m⁺, a Euclidean distance.
        negative_margin: m⁻, a Euclidean distance.

    Raises:
        ValueError: an argument is not a finite number.

    Example:
        >>> loss = C2Loss()
        >>> embeddings = torch.eye(4)[[0, 1, 0, 2]]
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> round(loss(embeddings, labels).item(), 3)
        1.798
    """

    def __init__(self, positive_margin: float = 0.0, negative_margin: float = 0.3841) -> None:
        super().__init__()
        self.positive_margin = check_finite("positive_margin", positive_margin)
        self.negative_margin = check_finite("negative_margin", negative_margin)

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        r_BR = distances(clip_to_ball(x_BD), clip_to_ball(ref_RD))
        positive_BR, negative_BR = pairs.masks()
        pull_BR = torch.where(positive_BR, (r_BR - self.positive_margin).relu(), 0)
        push_BR = torch.where(negative_BR, (self.negative_margin - r_BR).relu(), 0)
        return _mean_over_non_zero(pull_BR) + _mean_over_non_zero(push_BR)


def _mean_over_non_zero(losses: Tensor) -> Tensor:
    return losses.sum() / (losses > 0).sum().clamp_min(1)
