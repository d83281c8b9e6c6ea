"""Losses of all triplets without a list of them: triplet margin loss, and margin loss.

Shapes: B images in a batch, R references (the batch itself without references).
"""

from __future__ import annotations

import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.reducers import AvgNonZeroReducer, DivisorReducer
from torch import Tensor

from dml.losses.all_triplets import count_triplets
from dml.losses.baselines import terms
from dml.losses.baselines.terms import Batch, Masks, Terms, VectorizedLoss


class TripletMarginLoss(VectorizedLoss, pml.TripletMarginLoss):
    """Triplet margin loss: mean of non-zero [r_ap − r_an + m]_+ over all triplets.

    In time O(B·R·log R) and memory O(B·R). Mined or random triplets, `swap` and `smooth_loss` are
    computed by the code of the parent class.
    """

    def vectorized_terms(self, batch: Batch) -> Terms | None:
        """Returns the terms of the loss; see `VectorizedLoss`."""
        changed = self.swap or self.smooth_loss
        masks = _all_triplets(self, batch)
        if masks is None or changed or not terms.is_reduced_by(self, AvgNonZeroReducer):
            return None
        mat_BR = terms.pair_distances(self, batch.embeddings, batch.ref_emb)
        if self.distance.is_inverted:
            mat_BR = -mat_BR
        weight_BR, triplets = count_triplets(mat_BR.detach(), *masks, self.margin)
        # For a fixed set of violated triplets the loss is linear in the distances. Sums of both
        # signs cancel: in float32 six digits would be left.
        total = (weight_BR * mat_BR).sum(dtype=torch.float64) + self.margin * triplets.double()
        return {"loss": terms.reduced((total / triplets.clamp_min(1)).to(mat_BR.dtype))}


class MarginLoss(VectorizedLoss, pml.MarginLoss):
    """Margin loss: Σ ([r_ap − β + m]_+ + [β − r_an + m]_+) over all triplets / non-zero hinges.

    A pair counts once for each triplet that holds it. Mined or random triplets are computed by the
    code of the parent class.
    """

    def vectorized_terms(self, batch: Batch) -> Terms | None:
        """Returns the terms of the loss; see `VectorizedLoss`."""
        masks = _all_triplets(self, batch)
        if masks is None or not terms.is_reduced_by(self, DivisorReducer):
            return None
        mat_BR = terms.pair_distances(self, batch.embeddings, batch.ref_emb)
        beta_B1 = self.beta.to(mat_BR.device, mat_BR.dtype)[:, None]
        if len(beta_B1) > 1:
            beta_B1 = beta_B1[batch.labels]
        pull_BR = (self.distance.margin(mat_BR, beta_B1) + self.margin).relu()
        push_BR = (self.distance.margin(beta_B1, mat_BR) + self.margin).relu()
        positives_B1 = masks.positive.sum(dim=1, keepdim=True)
        negatives_B1 = masks.negative.sum(dim=1, keepdim=True)
        # triplets that hold a pair: the negatives of its anchor for a positive, and the reverse
        pulls_BR = masks.positive * negatives_B1
        pushes_BR = masks.negative * positives_B1
        hinges = (pulls_BR * (pull_BR > 0)).sum() + (pushes_BR * (push_BR > 0)).sum()
        divisor = hinges.clamp_min(1)
        total = (pulls_BR * pull_BR).sum() + (pushes_BR * push_BR).sum()
        triplets_B1 = positives_B1 * negatives_B1
        regularizer = self._beta_term(beta_B1, triplets_B1, hinges)
        return {
            "margin_loss": terms.reduced(total / divisor),
            "beta_reg_loss": terms.reduced(regularizer),
        }

    def _beta_term(self, beta_B1: Tensor, triplets_B1: Tensor, hinges: Tensor) -> Tensor:
        """Returns ν β, and for betas of classes Σ ν β over triplets / non-zero hinges."""
        if not self.learn_beta:
            return beta_B1.new_zeros(())
        if len(self.beta) == 1:
            return (self.nu * beta_B1.squeeze()).where(triplets_B1.any(), 0)
        total = (self.nu * beta_B1 * triplets_B1).sum() / hinges.clamp_min(1)
        return total.where(hinges > 0, 0)


def _all_triplets(loss: pml.TripletMarginLoss | pml.MarginLoss, batch: Batch) -> Masks | None:
    """Returns the masks of pairs whose triplets are all in the loss; None for listed triplets."""
    is_listed = batch.indices_tuple is not None or loss.triplets_per_anchor != "all"
    if is_listed or batch.labels is None or batch.ref_labels is None:
        return None
    return terms.all_pairs(batch.labels, batch.ref_labels)
