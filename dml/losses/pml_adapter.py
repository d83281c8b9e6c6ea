"""Adapter of a loss to pytorch-metric-learning's base class, for code that requires it."""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning.losses import BaseMetricLossFunction
from torch import Tensor, nn


class PMLAdapter(BaseMetricLossFunction):
    """Wraps a loss for `DistributedLossWrapper`, or adds an embedding regularizer.

    Most code of pytorch-metric-learning (trainers, `MultipleLosses`, miners) accepts the losses of
    `dml.losses` directly. This class is for code that requires a subclass of
    `BaseMetricLossFunction`.

    Args:
        loss: called as `loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)`.
        options: options of `BaseMetricLossFunction`, such as `embedding_regularizer`. Distance and
            reducer have no effect, since the loss is a scalar.
    """

    def __init__(self, loss: nn.Module, **options: Any) -> None:
        super().__init__(**options)
        self.loss = loss

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any,
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> dict[str, dict[str, Any]]:
        """Returns the loss in the form for reducers.

        Args:
            embeddings: B×D.
            labels: B integers.
            indices_tuple: pairs or triplets of a miner, or None.
            ref_emb: R×D references; `embeddings` itself: no references.
            ref_labels: R integers.

        Raises:
            ValueError: an argument is invalid for the loss.
        """
        references = () if ref_emb is embeddings else (ref_emb, ref_labels)
        value = self.loss(embeddings, labels, indices_tuple, *references)
        return {"loss": {"losses": value, "indices": None, "reduction_type": "already_reduced"}}
