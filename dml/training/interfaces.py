"""The interfaces between the training loop and its callers: method, configuration, callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from dml.core.errors import RunStopped
from dml.training.clock import StepClock

Metrics = dict[str, float]


class Method(Protocol):
    """Computes a loss from a batch; an `nn.Module` whose parameters are the loss's.

    Where several processes share a batch, `__call__` gets the labels of the whole batch, and an
    embedder that returns the embeddings of the whole batch (`dml.training.data_parallel`).

    Attributes:
        whole: what else of the whole batch it needs, "images" or "features"; nothing if absent.
        loss_constant: a part of the loss that training cannot change; 0 if absent.
    """

    whole: frozenset[str]
    loss_constant: float

    def __call__(
        self, embedder: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss and values to log."""
        ...

    def after_backward(self, embedder: nn.Module) -> None:
        """May add to the gradients."""
        ...

    def on_evaluation(self, embedder: nn.Module, score: float) -> dict[str, float]:
        """Receives the score of an evaluation; returns values to log beside it."""
        ...

    def on_stall(self, embedder: nn.Module) -> bool:
        """Called when patience is exhausted; returns True to continue training all the same."""
        ...


@dataclass(frozen=True)
class TrainConfig:
    """The length of a training and the limits of its steps.

    Attributes:
        epochs: at most.
        steps_per_epoch: steps that count as an epoch.
        evaluate_every: steps between evaluations.
        select_metric: the score that selects the best evaluation; larger is better.
        warmup_epochs: epochs with a frozen backbone.
        clip_value, clip_norm: limits of the network's gradients; None: no limit.
        clip_loss_parameters: gradients of loss parameters are clipped together with them.
        precision: of the network, see `dml.training.device`.
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

    @property
    def total_steps(self) -> int:
        """Steps of all epochs."""
        return self.epochs * self.steps_per_epoch


@dataclass
class Callbacks:
    """The functions that the trainer calls.

    Attributes:
        evaluate: returns the metrics of the network in its current state.
        log: receives a row of metrics per evaluation, and the step.
        should_stop: called after every step; returns the exception to raise once the state is
            saved, or None to continue.
        on_step: receives the step, the values to log and the clock after every step.
        on_interval: receives the clock at every evaluation that follows steps.
    """

    evaluate: Callable[[], Metrics]
    log: Callable[[dict[str, Any], int], None]
    should_stop: Callable[[], RunStopped | None] = lambda: None
    on_step: Callable[[int, dict[str, Tensor], StepClock], None] = lambda *state: None
    on_interval: Callable[[StepClock], None] = lambda clock: None
