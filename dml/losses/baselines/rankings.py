"""FastAP and N-pairs.

Shapes: B images in a batch, L edges of a histogram of distances.
"""

from __future__ import annotations

import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor
from torch.nn.functional import cross_entropy

from dml.losses.baselines import terms
from dml.losses.baselines.terms import Batch, Masks, Terms, VectorizedLoss


class FastAPLoss(VectorizedLoss, pml.FastAPLoss):
    """FastAP: 1 − the mean average precision of images, from soft histograms of squared distances.

    Each distance has a part in the two bins beside it, so that memory is O(B²), not O(B²·L).
    """

    def vectorized_terms(self, batch: Batch) -> Terms | None:
        """Returns the terms of the loss; see `VectorizedLoss`."""
        labels, is_mined = batch.labels, batch.indices_tuple is not None
        if labels is None or is_mined or batch.has_references:
            return None
        if not terms.is_reduced_by(self, MeanReducer):
            return None
        masks = terms.all_pairs(labels, labels)
        positive_BL, negative_BL = self._histograms(self.distance(batch.embeddings), masks)
        above_BL = positive_BL.cumsum(dim=1)
        product_BL = positive_BL * above_BL
        total_BL = (positive_BL + negative_BL).cumsum(dim=1)
        counts_BL = (product_BL > 0) & (total_BL > 0)
        # in bins that do not count, 0 / 1 instead of 0 / 0, whose gradient is NaN
        precision_BL = product_BL.masked_fill(~counts_BL, 0) / total_BL.masked_fill(~counts_BL, 1)
        positives_B = masks.positive.sum(dim=1)
        losses_B = 1 - precision_BL.sum(dim=1) / positives_B.clamp_min(1)
        is_query_B = (positives_B > 0) & counts_BL.any()
        total = losses_B.masked_fill(~is_query_B, 0).sum()
        return {"loss": terms.reduced(total / is_query_B.sum().clamp_min(1))}

    def _histograms(self, mat_BB: Tensor, masks: Masks) -> tuple[Tensor, Tensor]:
        """Returns the soft counts of positives and of negatives (both B×L)."""
        width = 2**self.distance.power / self.num_bins
        at_BB = mat_BB / width
        lower_BB = at_BB.detach().floor().clamp(0, self.num_bins - 1)
        # the parts of a distance beyond the last edge end one bin later
        upper_part_BB = (1 - (at_BB - lower_BB - 1).abs()).relu()
        lower_part_BB = (1 - (at_BB - lower_BB).abs()).relu()
        edge_BB = lower_BB.long()
        empty_BL = mat_BB.new_zeros(len(mat_BB), self.num_edges)
        positive_BL, negative_BL = (
            empty_BL.scatter_add(1, edge_BB, lower_part_BB * mask_BB).scatter_add(
                1, edge_BB + 1, upper_part_BB * mask_BB
            )
            for mask_BB in masks
        )
        return positive_BL, negative_BL


class NPairsLoss(VectorizedLoss, pml.NPairsLoss):
    """N-pairs: cross-entropy of the first image of each class against the second ones of all."""

    def vectorized_terms(self, batch: Batch) -> Terms | None:
        """Returns the terms of the loss; see `VectorizedLoss`."""
        labels, is_mined = batch.labels, batch.indices_tuple is not None
        if labels is None or is_mined or batch.has_references or self.collect_stats:
            return None
        first_N, second_N = _first_two_of_classes(labels)
        if len(second_N) == 0:
            return self.zero_losses()
        s_NN = self.distance(batch.embeddings[first_N], batch.embeddings[second_N])
        if not self.distance.is_inverted:
            s_NN = -s_NN
        targets_N = torch.arange(len(second_N), device=s_NN.device)
        losses_N = cross_entropy(s_NN, targets_N, reduction="none")
        return {"loss": terms.elements(losses_N) | {"indices": first_N}}


def _first_two_of_classes(labels_B: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first and the second image of each class with two (both N), by the second.

    Labels are sorted: a matrix of pairs would be computed by several threads, for which a step of
    so little work waits on a busy machine.
    """
    order_B = labels_B.argsort(stable=True)
    sorted_B = labels_B[order_B]
    repeats = sorted_B[1:] == sorted_B[:-1]
    is_second = repeats.clone()
    is_second[1:] &= ~repeats[:-1]
    before = is_second.nonzero().squeeze(1)  # the first image stands before the second
    second_N, rows = order_B[before + 1].sort()
    return order_B[before][rows], second_N
