"""A training step: forward pass, backward pass, and the step of the optimizer."""

from __future__ import annotations

from itertools import chain
from typing import Any

from torch import Tensor, nn

from dml.core.errors import UserError
from dml.training.data_parallel import ShardedEmbedder
from dml.training.interfaces import TrainConfig
from dml.training.precision import autocast
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup
from dml.training.train_state import TrainState


class InvalidBatchError(UserError):
    """The loss cannot be computed for a batch."""


class TrainingStep:
    """Forward pass, backward pass, and the step of the optimizer, identical on all processes.

    Args:
        state: the network with method and optimizer.
        config: precision and limits of gradients.
        world: the processes that share each batch.
    """

    def __init__(
        self, state: TrainState, config: TrainConfig, world: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.embedder, self.method, self.optimizer = state.embedder, state.method, state.optimizer
        self.config, self.world = config, world
        backbone = self.embedder.backbone.parameters()  # type: ignore[union-attr]
        self._backbone = [p for p in backbone if p.requires_grad]
        self._frozen = False
        whole: frozenset[str] = getattr(self.method, "whole", frozenset())
        self._sharded = ShardedEmbedder(self.embedder, world, whole) if world.size > 1 else None

    def __call__(self, images: Tensor, labels: Tensor, warming_up: bool) -> dict[str, Tensor]:
        """Trains on this process's share of a batch.

        Args:
            images: B×3×H×W.
            labels: B.
            warming_up: whether the backbone is frozen.

        Returns:
            Scalars of the whole batch to log, `loss` among them.

        Raises:
            InvalidBatchError: the loss cannot be computed for this batch.
        """
        self._freeze_backbone(warming_up)
        self.embedder.train()
        self.method.train()
        loss, logs = self._loss(images, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.world.average_gradients(chain(self.embedder.parameters(), self.method.parameters()))
        self.method.after_backward(self.embedder)  # type: ignore[operator]
        self._clip_gradients()
        self.optimizer.step()
        return {"loss": loss.detach(), **logs}

    def _clip_gradients(self) -> None:
        parameters = list(self.embedder.parameters())
        if self.config.clip_loss_parameters:
            parameters += self.method.parameters()
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.config.clip_norm)
        if self.config.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.config.clip_value)

    def _loss(self, images: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        embedder: Any = self.embedder
        if self._sharded is not None:
            embedder = self._sharded
            images, labels = embedder.gather_inputs(images, labels)
        try:
            with autocast(self.config.precision, images.device):
                return self.method(embedder, images, labels)
        except ValueError as error:
            raise InvalidBatchError(str(error)) from error

    def _freeze_backbone(self, frozen: bool) -> None:
        if frozen != self._frozen:
            for parameter in self._backbone:
                parameter.requires_grad_(not frozen)
            self._frozen = frozen
