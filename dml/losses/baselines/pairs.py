"""Losses of all or mined pairs: MS, SupCon, Circle, Contrastive, SNR and NT-Xent.

Shapes: B images in a batch, R references (the batch itself without references).
"""

from __future__ import annotations

import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import SNRDistance
from pytorch_metric_learning.reducers import AvgNonZeroReducer, MeanReducer
from torch import Tensor

from dml.losses.baselines import terms
from dml.losses.baselines.terms import Batch, Masks, Terms, VectorizedLoss

FEW = 2  # entries of a matrix up to which the library knows empty losses of its own


class _MatrixLoss(VectorizedLoss):
    """A loss computed from a matrix of distances and masks of its pairs.

    Attributes:
        takes_mined: whether a pair counts once however often a miner names it.
    """

    takes_mined = True

    def vectorized_terms(self, batch: Batch) -> Terms | None:
        """Returns the terms of the loss; see `VectorizedLoss`."""
        masks = self._masks(batch)
        if masks is None or not self.is_vectorized():
            return None
        return self.matrix_terms(self.matrix(batch.embeddings, batch.ref_emb), masks)

    def is_vectorized(self) -> bool:
        """Returns whether the form of this class has the options of the loss."""
        return True

    def matrix(self, embeddings: Tensor, ref_emb: Tensor) -> Tensor:
        """Returns the distances or similarities of all pairs (B×R)."""
        return terms.pair_distances(self, embeddings, ref_emb)

    def matrix_terms(self, mat_BR: Tensor, masks: Masks) -> Terms:
        """Returns the terms of the loss."""
        raise NotImplementedError

    def _masks(self, batch: Batch) -> Masks | None:
        """Returns the masks of the pairs; None where the code of the library decides."""
        shape = len(batch.embeddings), len(batch.ref_emb)
        if shape[0] * shape[1] <= FEW:
            return None
        if batch.indices_tuple is not None:
            names_pairs = any(len(indices) > 1 for indices in batch.indices_tuple)
            if not names_pairs or not self.takes_mined:
                return None
            return terms.mined_pairs(batch.indices_tuple, shape)
        if batch.labels is None or batch.ref_labels is None:
            return None
        return terms.all_pairs(batch.labels, batch.ref_labels)


class MultiSimilarityLoss(_MatrixLoss, pml.MultiSimilarityLoss):
    """Multi-Similarity: mean_i log(1 + Σ_pos e^−α(s−λ)) / α + log(1 + Σ_neg e^β(s−λ)) / β."""

    def matrix_terms(self, mat_BR: Tensor, masks: Masks) -> Terms:
        """Returns a term for each image."""
        pull_BR = self.alpha * self.distance.margin(mat_BR, self.base)
        push_BR = self.beta * self.distance.margin(self.base, mat_BR)
        pull_B = terms.log_one_plus_sum(pull_BR, masks.positive) / self.alpha
        push_B = terms.log_one_plus_sum(push_BR, masks.negative) / self.beta
        return {"loss": terms.elements((pull_B + push_B)[:, None])}  # B×1, as in the library


class SupConLoss(_MatrixLoss, pml.SupConLoss):
    """SupCon: mean_i of −mean_pos log( e^(s/T) / Σ_others e^(s/T) )."""

    def matrix_terms(self, mat_BR: Tensor, masks: Masks) -> Terms:
        """Returns a term for each image, 0 if no image has a positive, or none a negative."""
        if not self.distance.is_inverted:
            mat_BR = -mat_BR
        mat_BR = mat_BR / self.temperature
        mat_BR = mat_BR - mat_BR.detach().amax(dim=1, keepdim=True)
        others_B1 = terms.keep(mat_BR, masks.positive | masks.negative).logsumexp(1, keepdim=True)
        log_BR = (mat_BR - others_B1).masked_fill(~masks.positive, 0)
        positives_B = masks.positive.sum(dim=1).clamp_min(1)
        exists = masks.positive.any() & masks.negative.any()
        losses_B = (-log_BR.sum(dim=1) / positives_B).masked_fill(~exists, 0)
        return {"loss": _per_image(self, losses_B)}


class CircleLoss(_MatrixLoss, pml.CircleLoss):
    """Circle: mean_i log(1 + Σ_neg e^γ[s + m]_+(s − m) · Σ_pos e^−γ[1 + m − s]_+(s − 1 + m))."""

    def matrix_terms(self, mat_BR: Tensor, masks: Masks) -> Terms:
        """Returns a term for each image, 0 without positives or without negatives."""
        fixed_BR = mat_BR.detach()
        pull_BR = -self.gamma * (self.op - fixed_BR).relu() * (mat_BR - self.delta_p)
        push_BR = self.gamma * (fixed_BR - self.on).relu() * (mat_BR - self.delta_n)
        empty_B = ~(masks.positive.any(dim=1) & masks.negative.any(dim=1))
        pull_B = terms.keep(pull_BR, masks.positive).logsumexp(dim=1).masked_fill(empty_B, 0)
        push_B = terms.keep(push_BR, masks.negative).logsumexp(dim=1).masked_fill(empty_B, 0)
        losses_B = self.soft_plus(pull_B + push_B).masked_fill(empty_B, 0)
        return {"loss": _per_image(self, losses_B[:, None])}  # B×1, as in the library


class ContrastiveLoss(_MatrixLoss, pml.ContrastiveLoss):
    """Contrastive: mean of non-zero [r − m⁺]_+ plus mean of non-zero [m⁻ − r]_+ over all pairs."""

    takes_mined = False

    def is_vectorized(self) -> bool:
        """Returns whether both terms are means over their non-zero pairs."""
        return terms.is_reduced_by(self, AvgNonZeroReducer)

    def matrix_terms(self, mat_BR: Tensor, masks: Masks) -> Terms:
        """Returns the term of positive and that of negative pairs."""
        pull_BR = self.pos_calc(mat_BR, self.pos_margin).masked_fill(~masks.positive, 0)
        push_BR = self.neg_calc(mat_BR, self.neg_margin).masked_fill(~masks.negative, 0)
        return {
            "pos_loss": terms.reduced(terms.mean_of_positive(pull_BR)),
            "neg_loss": terms.reduced(terms.mean_of_positive(push_BR)),
        }


class SignalToNoiseRatioContrastiveLoss(ContrastiveLoss, pml.SignalToNoiseRatioContrastiveLoss):
    """Contrastive with the distance var(x_a − x_b) / var(x_a) of unit vectors."""

    def matrix(self, embeddings: Tensor, ref_emb: Tensor) -> Tensor:
        """Returns the distances of all pairs (B×R), without B×R×D differences."""
        d = self.distance
        if type(d) is not SNRDistance or d.power != 1 or d.collect_stats or embeddings.is_cuda:
            return super().matrix(embeddings, ref_emb)
        x_BD = d.maybe_normalize(embeddings)
        y_RD = x_BD if ref_emb is embeddings else d.maybe_normalize(ref_emb)
        centered_BD = x_BD - x_BD.mean(dim=1, keepdim=True)
        other_RD = y_RD - y_RD.mean(dim=1, keepdim=True)
        # by differences: equal images have distance 0, and are not among the non-zero terms
        exact = "donot_use_mm_for_euclid_dist"
        squared_BR = torch.cdist(centered_BD, other_RD, compute_mode=exact).square()
        return squared_BR / centered_BD.square().sum(dim=1, keepdim=True)


class NTXentLoss(_MatrixLoss, pml.NTXentLoss):
    """NT-Xent: mean over positive pairs of −log( e^(s/T) / (e^(s/T) + Σ_neg e^(s/T)) )."""

    takes_mined = False

    def is_vectorized(self) -> bool:
        """Returns whether the loss is the mean over positive pairs."""
        return terms.is_reduced_by(self, MeanReducer)

    def matrix_terms(self, mat_BR: Tensor, masks: Masks) -> Terms:
        """Returns the mean over positive pairs, 0 if there are none or no negative pairs."""
        if not self.distance.is_inverted:
            mat_BR = -mat_BR
        mat_BR = mat_BR / self.temperature
        negatives_B1 = terms.keep(mat_BR, masks.negative).logsumexp(dim=1, keepdim=True)
        share_BR = (mat_BR - negatives_B1).sigmoid()
        # shares that underflow have the loss of the smallest number, and no gradient
        losses_BR = -(share_BR + torch.finfo(share_BR.dtype).tiny).log()
        counts_BR = masks.positive & masks.negative.any()
        total = losses_BR.masked_fill(~counts_BR, 0).sum()
        return {"loss": terms.reduced(total / masks.positive.sum().clamp_min(1))}


def _per_image(loss: pml.BaseMetricLossFunction, losses: Tensor) -> Terms:
    """Returns terms of images, reduced here to the mean of the non-zero ones by default."""
    if terms.is_reduced_by(loss, AvgNonZeroReducer):
        return terms.reduced(terms.mean_of_positive(losses))
    return terms.elements(losses)
