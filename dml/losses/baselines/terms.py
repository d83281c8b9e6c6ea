"""Terms of losses, their reduction to a number, and the masks of pairs in a batch.

Shapes: B images in a batch, R references, N terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from pytorch_metric_learning.distances import BaseDistance
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.reducers import BaseReducer, MultipleReducers
from torch import Tensor

from dml.losses.class_groups import softplus
from dml.losses.mined_pairs import mined_masks

Terms = dict[str, Any]  # of a loss, as its reducer takes them


class Masks(NamedTuple):
    """Masks of the pairs in a loss (both B×R)."""

    positive: Tensor
    negative: Tensor


class Batch(NamedTuple):
    """What a loss of the library is called with.

    Attributes:
        embeddings: B×D.
        labels: B integers; None: the miner's pairs say which images match.
        indices_tuple: pairs or triplets of a miner; None: without one.
        ref_emb, ref_labels: of the references (R×D, R); without references those of the batch.
    """

    embeddings: Tensor
    labels: Tensor | None
    indices_tuple: Any
    ref_emb: Tensor
    ref_labels: Tensor | None

    @property
    def has_references(self) -> bool:
        """Whether images are compared with other ones than those of the batch."""
        return self.ref_emb is not self.embeddings or self.ref_labels is not self.labels


class VectorizedLoss(BaseMetricLossFunction):
    """A loss with a vectorized form, beside the code of the library for what it does not have."""

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: Any,
        ref_emb: Tensor,
        ref_labels: Tensor | None,
    ) -> Terms:
        """Returns the terms of the loss, for its reducer."""
        batch = Batch(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        computed = self.vectorized_terms(batch)
        if computed is None:
            return super().compute_loss(*batch)
        return computed

    def vectorized_terms(self, batch: Batch) -> Terms | None:
        """Returns the terms of the loss; None where the code of the library computes them."""
        raise NotImplementedError


def pair_distances(loss: BaseMetricLossFunction, embeddings: Tensor, ref_emb: Tensor) -> Tensor:
    """Returns the distances or similarities of all pairs (B×R); a batch is normalized once."""
    if ref_emb is embeddings and isinstance(loss.distance, BaseDistance):
        return loss.distance(embeddings)
    return loss.distance(embeddings, ref_emb)


def all_pairs(labels: Tensor, ref_labels: Tensor) -> Masks:
    """Returns the masks of all pairs, without pairs of an image with itself.

    Args:
        labels: B integers.
        ref_labels: R integers; the tensor `labels` itself if a batch is compared with itself.
    """
    same_BR = labels[:, None] == ref_labels
    negative_BR = ~same_BR
    if ref_labels is labels:
        same_BR.fill_diagonal_(False)
    return Masks(same_BR, negative_BR)


def mined_pairs(indices_tuple: tuple[Tensor, ...], shape: tuple[int, int]) -> Masks | None:
    """Returns the masks of the pairs of a miner; None if one is both positive and negative.

    Args:
        indices_tuple: triplets (three tensors) or pairs (four).
        shape: B, R.
    """
    masks = Masks(*mined_masks(indices_tuple, *shape))
    is_contrary = bool((masks.positive & masks.negative).any())
    return None if is_contrary else masks


def reduced(value: Tensor) -> Terms:
    """Returns a term that a reducer takes as it is."""
    return {"losses": value, "indices": None, "reduction_type": "already_reduced"}


def elements(losses_N: Tensor, **more: Any) -> Terms:
    """Returns one term for each image, or for each class."""
    indices = torch.arange(len(losses_N), device=losses_N.device)
    return {"losses": losses_N, "indices": indices, "reduction_type": "element", **more}


def is_reduced_by(loss: BaseMetricLossFunction, kind: type[BaseReducer]) -> bool:
    """Returns whether reducers of this type reduce every term, and record no statistics.

    Terms of regularizers are reduced already.
    """
    reducers = [loss.reducer]
    if type(loss.reducer) is MultipleReducers:
        named = dict(loss.reducer.reducers)
        names = set(loss.sub_loss_names()) - set(loss.all_regularization_loss_names())
        reducers = [named.get(name, loss.reducer.default_reducer) for name in names]
    return all(type(reducer) is kind and not reducer.collect_stats for reducer in reducers)


def mean_of_positive(losses: Tensor) -> Tensor:
    """Returns the mean of the terms above 0; 0 if there are none."""
    return losses.sum() / (losses > 0).sum().clamp_min(1)


def keep(values_BR: Tensor, mask_BR: Tensor) -> Tensor:
    """Returns values for `logsumexp`: the least finite number outside of the mask.

    Minus infinity would have the gradient NaN in rows where nothing is kept.
    """
    return values_BR.masked_fill(~mask_BR, torch.finfo(values_BR.dtype).min)


def log_one_plus_sum(exponents: Tensor, mask: Tensor, dim: int = 1) -> Tensor:
    """Returns log(1 + Σ e^x) over the entries of the mask along a dimension."""
    return softplus(keep(exponents, mask).logsumexp(dim=dim))
