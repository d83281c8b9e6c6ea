"""What the training loop is told: how long, how fast, and what it may ask of a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

Metrics = dict[str, float]


class Method(Protocol):
    """How a batch becomes a loss; an `nn.Module` whose parameters are the loss's.

    Where several processes share a batch, `__call__` gets the labels of the whole batch, and an
    embedder that gives the embeddings of the whole batch (`dml.training.data_parallel`).

    Attributes:
        whole: what else of the whole batch it needs, "images" or "features"; nothing if absent.
    """

    whole: frozenset[str]

    def __call__(
        self, embedder: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and values to log."""
        ...

    def after_backward(self, embedder: nn.Module) -> None:
        """May add to the gradients."""
        ...

    def on_evaluation(self, embedder: nn.Module, score: float) -> dict[str, float]:
        """Takes note of a score; returns what to log beside it."""
        ...

    def on_stall(self, embedder: nn.Module) -> bool:
        """The protocol's patience is at an end; True: go on all the same."""
        ...


class Storage(Protocol):
    """Where states go (`dml.training.checkpoint.Checkpoints`)."""

    def save(self, state: dict[str, Any]) -> None:
        """Keeps the newest state."""
        ...

    def save_best(self, state: dict[str, Any]) -> None:
        """Keeps the best weights."""
        ...


class Tracker(Protocol):
    """Takes one row of metrics at a time."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Keeps one row."""
        ...


@dataclass(frozen=True)
class TrainConfig:
    """How long to train and how to move the weights.

    Attributes:
        epochs: at most.
        steps_per_epoch: steps that count as an epoch.
        evaluate_every: steps between evaluations.
        select_metric: the score that picks the best evaluation; larger is better.
        warmup_epochs: the backbone rests for that long.
        clip_value, clip_norm: limits of the network's gradients; None: none.
        clip_loss_parameters: gradients of loss parameters are clipped together with them.
        precision: of the network, see `dml.training.precision`.
    """

    epochs: int
    steps_per_epoch: int
    evaluate_every: int
    select_metric: str = "map_at_r"
    warmup_epochs: int = 0
    clip_value: float | None = None
    clip_norm: float | None = None
    clip_loss_parameters: bool = False
    precision: str = "fp32"
