"""Changes of similarities under a gradient step on the embeddings: the pull of a loss on pairs.

Shapes: B embeddings of a batch, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dml.losses.cosine import unit_rows


@dataclass(frozen=True)
class SimilarityChanges:
    """First-order changes of cosine similarities by a gradient step of length 1 on the unit sphere.

    Attributes:
        positive, negative: mean over the pairs of equal and of different class.
        positive_share, negative_share: share of these pairs whose similarity rises, 0-1.
    """

    positive: float
    negative: float
    positive_share: float
    negative_share: float


def similarity_changes(
    loss: Callable[[Tensor], Tensor], x_BD: Tensor, labels: Tensor
) -> SimilarityChanges | None:
    """Returns the changes that a loss causes if the embeddings themselves follow its gradient.

    A step moves uᵢ by −gᵢ / ‖g‖, where g is the gradient on the sphere (the part along uᵢ changes
    no similarity) and ‖g‖ its norm over the batch; uᵢ·uⱼ then changes by −(gᵢ·uⱼ + uᵢ·gⱼ) / ‖g‖.

    Args:
        loss: maps embeddings B×D to a scalar.
        x_BD: embeddings of any length, in which the loss is differentiated after normalization.
        labels: of the embeddings (B).

    Returns:
        The changes; None where the gradient is zero or there are no pairs of one kind.
    """
    u_BD = unit_rows(x_BD.detach().double())[0].requires_grad_()
    (gradient_BD,) = torch.autograd.grad(loss(u_BD), u_BD)
    with torch.no_grad():
        along_B1 = (gradient_BD * u_BD).sum(dim=1, keepdim=True)
        sphere_BD = gradient_BD - along_B1 * u_BD
        norm = sphere_BD.norm()
        same_BB = labels[:, None] == labels
        above = torch.ones_like(same_BB).triu(diagonal=1)  # each pair once
        positive, negative = same_BB & above, ~same_BB & above
        if norm == 0 or not positive.any() or not negative.any():
            return None
        half_BB = -(sphere_BD / norm) @ u_BD.T
        change_BB = half_BB + half_BB.T
        return SimilarityChanges(
            float(change_BB[positive].mean()),
            float(change_BB[negative].mean()),
            float((change_BB[positive] > 0).double().mean()),
            float((change_BB[negative] > 0).double().mean()),
        )
