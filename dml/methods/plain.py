"""Plain training: the loss of each batch, unchanged."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dml.methods.loss_values import LossValue, empty_logs, read_loss
from dml.methods.mining import mine_pairs
from dml.models.embedder import Embedder
from dml.training.interfaces import Method


class Plain(Method):
    """Embeds the batch and applies the loss, with mined pairs or triplets if there is a miner.

    Args:
        loss: called as `loss(embeddings, labels)`, with a miner as `loss(embeddings, labels,
            indices_tuple)`. A result B×C is taken as logits, such as those of ArcFace layers in
            other codebases, and their cross-entropy is the loss.
        miner: called as `miner(embeddings, labels)`; None: the loss uses the whole batch.
        num_classes: C; None: results are never taken as logits.
    """

    def __init__(
        self,
        loss: nn.Module,
        miner: Callable[[Tensor, Tensor], Any] | None = None,
        num_classes: int | None = None,
    ):
        super().__init__()
        self.loss = loss
        self.miner = miner
        self.num_classes = num_classes
        self._passes_pairs = (
            miner is not None or "indices_tuple" in inspect.signature(loss.forward).parameters
        )
        self.loss_constant = float(getattr(loss, "constant", 0.0))

    def forward(
        self, embedder: Embedder, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B; logs it in units of its `log_unit`."""
        embeddings = embedder(images)
        with torch.autocast(embeddings.device.type, enabled=False):
            # losses of other packages do not handle autocast
            embeddings = embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))
            read = self.clean_loss(embeddings, labels, self.mine(embeddings, labels))
        logs = empty_logs(read)
        unit = getattr(self.loss, "log_unit", None)
        if unit is not None:
            logs["loss"] = read.value.detach() / unit(len(labels))
        return read.value, logs

    def mine(self, embeddings: Tensor, labels: Tensor) -> Any:
        """Returns the pairs of the miner; None without a miner, which means all pairs."""
        if self.miner is None:
            return None
        return mine_pairs(self.miner, embeddings, labels)

    def clean_loss(self, embeddings: Tensor, labels: Tensor, mined: Any) -> LossValue:
        """Returns the loss of embeddings B×D with labels B and the pairs of the miner.

        Raises:
            ConfigError: the loss returns neither one number nor logits, or has no gradient.
        """
        value = self.loss(embeddings, labels, *([mined] if self._passes_pairs else []))
        if isinstance(value, Tensor) and value.shape == (len(labels), self.num_classes):
            value = cross_entropy(value, labels)
        return read_loss(value, embeddings, self.loss, self.num_classes)
