"""A loss as a subclass of pytorch-metric-learning's base class, for code that checks the class."""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning.losses import BaseMetricLossFunction
from torch import Tensor, nn


class PMLAdapter(BaseMetricLossFunction):
    """A loss for `DistributedLossWrapper`, or with an embedding regularizer.

    Most code of pytorch-metric-learning takes the losses of `dml.losses` as they are: trainers,
    `MultipleLosses`, miners. This class serves where a subclass of `BaseMetricLossFunction` is
    required.

    Args:
        loss: called as `loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)`.
        options: of `BaseMetricLossFunction`, such as `embedding_regularizer`. Distance and reducer
            have no effect: the loss is a scalar already.
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
        """Returns the loss in the form that reducers take.

        Args:
            embeddings: B×D.
            labels: B integers.
            indices_tuple: of a miner, or None.
            ref_emb: R×D references; `embeddings` itself stands for none.
            ref_labels: R integers.

        Raises:
            ValueError: the loss refuses an argument.
        """
        references = () if ref_emb is embeddings else (ref_emb, ref_labels)
        value = self.loss(embeddings, labels, indices_tuple, *references)
        return {"loss": {"losses": value, "indices": None, "reduction_type": "already_reduced"}}
