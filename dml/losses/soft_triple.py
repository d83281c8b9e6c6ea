"""The regularizer of SoftTriple, in memory linear in the number of classes.

Shapes: C classes, K centers per class, D embedding dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dml.losses.arguments import check_integer, to_working_precision
from dml.losses.cosine import unit_rows

SMALL = 1e-12  # keeps the derivative of the square root finite for equal centers


class CentersRegularizer(nn.Module):
    """Half the mean distance between the centers of a class; minimizing it merges centers.

    Σ_c Σ_{s<t} ‖ŵ_cs − ŵ_ct‖ / (C K (K−1)), for `weight_regularizer=` of
    pytorch-metric-learning's SoftTripleLoss. The default regularizer there builds masks of (C·K)²
    entries, too many for the 113,180 centers of Stanford Online Products.

    Args:
        centers_per_class: K; with K = 1 the value is 0.

    Raises:
        ValueError: `centers_per_class` is not an integer of at least 1.

    Example:
        >>> regularizer = CentersRegularizer(centers_per_class=2)
        >>> regularizer(torch.randn(6, 8)).shape  # two centers of each of three classes
        torch.Size([])
    """

    def __init__(self, centers_per_class: int) -> None:
        super().__init__()
        self.centers_per_class = check_integer("centers_per_class", centers_per_class, at_least=1)

    def extra_repr(self) -> str:
        """Returns the hyperparameter."""
        return f"centers_per_class={self.centers_per_class}"

    def forward(self, weights: Tensor) -> Tensor:
        """Returns the regularizer of C·K×D centers; rows c·K…c·K+K−1 belong to class c."""
        centers = self.centers_per_class
        if centers == 1:
            return weights.sum() * 0
        with torch.autocast(device_type=weights.device.type, enabled=False):
            unit_CKD = unit_rows(to_working_precision(weights))[0].unflatten(0, (-1, centers))
            squared_CKK = 2 - 2 * unit_CKD @ unit_CKD.mT
            s, t = torch.triu_indices(centers, centers, offset=1, device=weights.device)
            distances = squared_CKK[:, s, t].clamp_min(SMALL).sqrt()
            return distances.sum() / (2 * distances.numel())
