"""A training step: forward pass, backward pass and optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor, nn

from dml.training.data_parallel import DataParallelLoss
from dml.training.device import autocast
from dml.training.empty_loss import connect_to_parameters
from dml.training.interfaces import TrainConfig
from dml.training.micro_batches import in_micro_batches
from dml.training.process_group import (
    SINGLE_PROCESS,
    ProcessGroup,
    translate_connection_errors,
)
from dml.training.train_state import TrainState

ComputeLoss = Callable[[Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]


class TrainingStep:
    """Forward pass, backward pass and optimizer step, with the same result on all processes.

    Args:
        state: network, method and optimizer.
        config: precision, micro-batches and gradient clipping.
        world: the processes that share each batch.
    """

    def __init__(
        self, state: TrainState, config: TrainConfig, world: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.state = state
        self.embedder, self.method, self.optimizer = state.embedder, state.method, state.optimizer
        self.config = config
        backbone = self.embedder.get_submodule("backbone")
        self._backbone = [p for p in backbone.parameters() if p.requires_grad]
        self._frozen = False
        self._clipped = list(self.embedder.parameters())
        if config.clip_loss_parameters:
            self._clipped += self.method.parameters()
        state.train()
        self._embedder_in_parts = in_micro_batches(self.embedder, config.micro_batch)
        self._compute_loss: ComputeLoss = self._local_loss
        if world.size > 1:
            self._compute_loss = DataParallelLoss(self._embedder_in_parts, self.method, world)

    def __call__(self, images: Tensor, labels: Tensor, warming_up: bool) -> dict[str, Tensor]:
        """Trains one step on this process's part of a batch.

        Args:
            images: B×3×H×W.
            labels: B.
            warming_up: whether the backbone is frozen.

        Returns:
            Scalars of the whole batch to log, including `loss`, which the method may rescale.

        Raises:
            ValueError: the loss cannot be computed for this batch.
            UserError: another process has ended.
        """
        if warming_up != self._frozen:
            for parameter in self._backbone:
                parameter.requires_grad_(not warming_up)
            self._frozen = warming_up
        if not self.embedder.training:  # after an evaluation
            self.state.train()
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.config.precision, images.device):
            loss, logs = self._compute_loss(images, labels)
        with translate_connection_errors():
            loss.backward()
        self.method.after_backward(self.embedder)
        if self.config.clip_norm is not None:
            gradients = [p.grad for p in self._clipped if p.grad is not None]
            # Squares of PFML's forces may overflow float32; an infinite norm would clip to zeros.
            norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]
            norm = nn.utils.get_total_norm(norms)
            nn.utils.clip_grads_with_norm_(self._clipped, self.config.clip_norm, norm)
        if self.config.clip_value is not None:
            nn.utils.clip_grad_value_(self._clipped, self.config.clip_value)
        self.optimizer.step()
        return {"loss": loss.detach(), **logs}

    def _local_loss(self, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, logs = self.method(self._embedder_in_parts, images, labels)
        parameters = chain(self.embedder.parameters(), self.method.parameters())
        return connect_to_parameters(loss, logs, parameters)
