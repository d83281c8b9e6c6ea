"""Plain training: the loss of each batch, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dml.losses.arguments import to_working_precision
from dml.methods.batch_method import BatchMethod


class Plain(BatchMethod):
    """Embeds the batch and applies the loss, with mined pairs or triplets if there is a miner.

    Args:
        loss: called as `loss(embeddings, labels, indices_tuple)`.
        miner: called as `miner(embeddings, labels)`; None: the loss uses the whole batch.
    """

    def __init__(self, loss: nn.Module, miner: Callable[[Tensor, Tensor], Any] | None = None):
        super().__init__()
        self.loss = loss
        self.miner = miner
        self.loss_constant = float(getattr(loss, "constant", 0.0))

    @staticmethod
    def result_id(loss_id: str, options: Mapping[str, Any]) -> str:
        """Returns the id in the tables of published results, from the id of the loss."""
        return loss_id

    def forward(
        self, embedder: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B, and its value in its `log_unit`."""
        embeddings = embedder(images)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = to_working_precision(
                embeddings
            )  # losses of other packages do not handle autocast
            mined = None if self.miner is None else self.miner(embeddings, labels)
            loss = self.loss(embeddings, labels, mined)
        unit = getattr(self.loss, "log_unit", None)
        return loss, {} if unit is None else {"loss": loss.detach() / unit(len(labels))}
