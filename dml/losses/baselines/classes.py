"""Losses of images and learned vectors of classes.

ArcFace, CosFace, normalized softmax, SoftTriple and Proxy Anchor.

Shapes: B images, D embedding dimensions, C classes, K centers per class.
"""

from __future__ import annotations

import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import CosineSimilarity, DotProductSimilarity
from pytorch_metric_learning.reducers import DivisorReducer
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_weights
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from dml.losses.baselines import terms
from dml.losses.baselines.terms import Batch, Terms, VectorizedLoss
from dml.losses.class_groups import softplus
from dml.losses.cosine import EPSILON


class _ClassLoss(VectorizedLoss):
    """A loss of similarities to the columns of a matrix, which are normalized.

    The library writes the normalized matrix; here the similarities are divided by the lengths of
    its columns.
    """

    def vectorized_terms(self, batch: Batch) -> Terms | None:
        """Returns the terms of the loss; see `VectorizedLoss`."""
        embeddings, labels, indices_tuple = batch[:3]
        if labels is None or batch.has_references or not self.is_vectorized():
            return None
        self.cast_types(embeddings.dtype, embeddings.device)
        weight_B = None
        if indices_tuple is not None:
            weight_B = convert_to_weights(indices_tuple, labels, dtype=embeddings.dtype)
        loss_terms = self.class_terms(embeddings, labels, weight_B)
        self.add_weight_regularization_to_loss_dict(loss_terms, self.weights())
        return loss_terms

    def is_vectorized(self) -> bool:
        """Returns whether similarities are cosines."""
        d = self.distance
        is_cosine = type(d) in (CosineSimilarity, DotProductSimilarity) and d.normalize_embeddings
        return (
            is_cosine and (d.p, d.power) == (2, 1) and not (d.collect_stats or self.collect_stats)
        )

    def weights(self) -> Tensor:
        """Returns the learned vectors as rows, for a regularizer."""
        raise NotImplementedError

    def class_terms(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Terms:
        """Returns the terms of a batch.

        Args:
            x_BD: embeddings.
            labels_B: integers from 0 to C−1.
            weight_B: weights of the images from a miner; None: all 1.
        """
        raise NotImplementedError


class _SoftmaxLoss(_ClassLoss):
    """Cross-entropy of scaled cosines, of which those of the images' classes are changed."""

    def weights(self) -> Tensor:
        """Returns the vectors of classes as rows."""
        return self.W.t()

    def logit_scale(self) -> float:
        """Returns the factor of the cosines."""
        return self.scale

    def target_cosines(self, cosine_B: Tensor) -> Tensor:
        """Returns what replaces the cosines to the images' classes (B)."""
        return cosine_B

    def cosines(self, x_BD: Tensor, scale: float) -> Tensor:
        """Returns scaled cosines to all classes (B×C)."""
        return scaled_cosines(x_BD, self.W, scale)

    def class_terms(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Terms:
        """Returns a term for each image."""
        scale = self.logit_scale()
        logits_BC = self.cosines(x_BD, scale)
        label_B1 = labels_B[:, None]
        cosine_B = logits_BC.gather(1, label_B1).squeeze(1) / scale
        target_B = scale * self.target_cosines(cosine_B)
        logits_BC = logits_BC.scatter(1, label_B1, target_B[:, None])
        losses_B = cross_entropy(logits_BC, labels_B, reduction="none")
        if weight_B is not None:
            losses_B = losses_B * weight_B
        return {"loss": terms.elements(losses_B)}


class ArcFaceLoss(_SoftmaxLoss, pml.ArcFaceLoss):
    """ArcFace: cos(θ + m) for the angle θ to the class, and cos θ − m sin m where θ + m > π."""

    def target_cosines(self, cosine_B: Tensor) -> Tensor:
        """Returns the cosines with the margin."""
        return self.modify_cosine_of_target_classes(cosine_B)


class CosFaceLoss(_SoftmaxLoss, pml.CosFaceLoss):
    """CosFace: the cosine to the class, minus m."""

    def target_cosines(self, cosine_B: Tensor) -> Tensor:
        """Returns the cosines with the margin."""
        return self.modify_cosine_of_target_classes(cosine_B)


class NormalizedSoftmaxLoss(_SoftmaxLoss, pml.NormalizedSoftmaxLoss):
    """Cross-entropy of cosines to classes, divided by a temperature."""

    def logit_scale(self) -> float:
        """Returns the factor of the cosines."""
        return 1 / self.temperature


class SoftTripleLoss(_SoftmaxLoss, pml.SoftTripleLoss):
    """SoftTriple: cross-entropy of similarities, each a mean over the centers of a class.

    The mean weighs centers by a softmax of their cosines times γ.
    """

    def weights(self) -> Tensor:
        """Returns the centers as rows."""
        return self.fc.t()

    def logit_scale(self) -> float:
        """Returns the factor of the similarities."""
        return self.la

    def target_cosines(self, cosine_B: Tensor) -> Tensor:
        """Returns the similarities minus m."""
        return cosine_B - self.margin

    def cosines(self, x_BD: Tensor, scale: float) -> Tensor:
        """Returns scaled similarities to all classes (B×C)."""
        s_BCK = scaled_cosines(x_BD, self.fc).unflatten(1, (-1, self.centers_per_class))
        share_BCK = (self.gamma * s_BCK).softmax(dim=2)
        return scale * (share_BCK * s_BCK).sum(dim=2)


class ProxyAnchorLoss(_ClassLoss, pml.ProxyAnchorLoss):
    """Proxy Anchor: log(1 + Σ_pos e^−α(s−m)) over classes in the batch, log(1 + Σ_neg e^α(s+m)).

    The first is averaged over the classes in the batch, the second over all classes.
    """

    def weights(self) -> Tensor:
        """Returns the proxies."""
        return self.proxies

    def class_terms(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Terms:
        """Returns two terms for each class."""
        s_BC = scaled_cosines(x_BD, self.proxies.t())
        label_B1 = labels_B[:, None]
        pull_B = self.alpha * (self.margin - s_BC.gather(1, label_B1).squeeze(1))
        push_BC = self.alpha * (s_BC + self.margin)
        if weight_B is not None:
            pull_B = pull_B + weight_B - 1
            push_BC = push_BC + weight_B[:, None] - 1
        push_BC = push_BC.scatter(1, label_B1, torch.finfo(push_BC.dtype).min)
        push_C = softplus(push_BC.logsumexp(dim=0))
        pull_C, present = self._pulls(pull_B, labels_B)
        return self._two_terms(pull_C, push_C, present)

    def _pulls(self, pull_B: Tensor, labels_B: Tensor) -> tuple[Tensor, Tensor]:
        """Returns log(1 + Σ e^x) over the images of each class (C), and the number of classes."""
        lowest = torch.finfo(pull_B.dtype).min
        largest_C = pull_B.new_full((self.num_classes,), lowest)
        largest_C.scatter_reduce_(0, labels_B, pull_B.detach(), "amax")
        is_present_C = largest_C > lowest
        largest_C.masked_fill_(~is_present_C, 0)
        sum_C = torch.zeros_like(largest_C).index_add(
            0, labels_B, (pull_B - largest_C[labels_B]).exp()
        )
        log_C = largest_C + sum_C.masked_fill(~is_present_C, 1).log()
        return softplus(log_C).masked_fill(~is_present_C, 0), is_present_C.sum()

    def _two_terms(self, pull_C: Tensor, push_C: Tensor, present: Tensor) -> Terms:
        """Returns the terms, reduced here by default: the reducer would wait for a GPU."""
        if terms.is_reduced_by(self, DivisorReducer):
            pull = terms.reduced(pull_C.sum() / present.clamp_min(1))
            return {"pos_loss": pull, "neg_loss": terms.reduced(push_C.mean())}
        return {
            "pos_loss": terms.elements(pull_C, divisor=int(present)),
            "neg_loss": terms.elements(push_C, divisor=self.num_classes),
        }


def scaled_cosines(x_BD: Tensor, columns_DC: Tensor, scale: float = 1.0) -> Tensor:
    """Returns scale · x̂_b · ŵ_c for all columns (B×C), without a normalized copy of them."""
    length_C = torch.linalg.vector_norm(columns_DC, dim=0).clamp_min(EPSILON)
    return (normalize(x_BD) @ columns_DC) * (scale / length_C)
