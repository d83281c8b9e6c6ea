"""The loss of each batch as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dml.losses.base import working_precision
from dml.methods.base import BatchMethod


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

    @staticmethod
    def result_id(loss_id: str, options: Mapping[str, Any]) -> str:
        """Id in the tables of printed results, from that of the loss and the method's options."""
        return loss_id

    def forward(
        self, embedder: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of images B×3×H×W with labels B, and nothing more to log."""
        embeddings = embedder(images)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = working_precision(embeddings)  # other packages' losses know no autocast
            mined = None if self.miner is None else self.miner(embeddings, labels)
            return self.loss(embeddings, labels, mined), {}
