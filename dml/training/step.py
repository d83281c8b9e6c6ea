"""One training step: from images and labels to weights that moved."""

from __future__ import annotations

from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from dml.core.errors import UserError
from dml.training.data_parallel import ShardedEmbedder
from dml.training.interfaces import TrainConfig
from dml.training.precision import autocast
from dml.training.process_group import World


class BatchRefused(UserError):
    """The loss cannot be computed of a batch."""


class TrainingStep:
    """Forward pass, backward pass, and the optimizer's step, on all processes alike.

    Args:
        embedder: the network; its `backbone` rests during warm-up.
        method: see `dml.training.interfaces.Method`.
        optimizer: over both.
        config: precision and limits of gradients.
        world: the processes that share each batch.
    """

    def __init__(
        self,
        embedder: nn.Module,
        method: nn.Module,
        optimizer: Optimizer,
        config: TrainConfig,
        world: World,
    ) -> None:
        self.embedder, self.method, self.optimizer = embedder, method, optimizer
        self.config, self.world = config, world
        self._backbone = [p for p in embedder.backbone.parameters() if p.requires_grad]  # type: ignore[union-attr]
        self._resting = False
        whole: frozenset[str] = getattr(method, "whole", frozenset())
        self._divided = ShardedEmbedder(embedder, world, whole) if world.size > 1 else None

    def __call__(self, images: Tensor, labels: Tensor, warming_up: bool) -> dict[str, Tensor]:
        """Trains on this process's share of a batch.

        Args:
            images: B×3×H×W.
            labels: B.
            warming_up: the backbone rests.

        Returns:
            Scalars to log, `loss` among them: those of the whole batch.

        Raises:
            BatchRefused: the loss says what it does not like.
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
        if self._divided is not None:
            embedder = self._divided
            images, labels = embedder.given(images, labels)
        try:
            with autocast(self.config.precision, images.device):
                return self.method(embedder, images, labels)
        except ValueError as error:
            raise BatchRefused(str(error)) from error

    def _freeze_backbone(self, rest: bool) -> None:
        if rest != self._resting:
            for parameter in self._backbone:
                parameter.requires_grad_(not rest)
            self._resting = rest
