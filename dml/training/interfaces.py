"""The interfaces between the training loop and its callers: method, configuration, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dml.core.errors import RunStopped

Metrics = dict[str, float]

# (images per class, index of the draw) -> batches of augmented training images and their labels,
# class by class; equal arguments give equal images.
SamplePool = Callable[[int, int], Iterable[tuple[Tensor, Tensor]]]


class Method(nn.Module):
    """Computes a loss from a batch; subclasses implement `forward` and the hooks they need.

    Parameters are those of the loss. All other state that training depends on belongs into buffers
    or `get_extra_state`, in plain types and tensors: checkpoints hold both.

    Where several processes share a batch, each of them computes the loss of the whole batch: labels
    and embeddings are those of all (`dml.training.data_parallel`), images and features are not.

    Attributes:
        whole: what else of the whole batch is needed: "images", "features".
        loss_constant: a part of the loss that training cannot change. The history has the loss
            without it too, because changes of a small rest are hard to see next to it.
    """

    whole: frozenset[str] = frozenset()
    loss_constant: float = 0.0

    def forward(
        self, embedder: Any, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B, and scalars to log."""
        raise NotImplementedError

    def attach(self, sample_pool: SamplePool) -> None:
        """Receives access to all training images, once, before training or resuming."""

    def after_backward(self, embedder: Any) -> None:
        """Called between backward pass and optimizer step; may change the gradients."""

    def on_evaluation(self, embedder: Any, score: float) -> dict[str, float]:
        """Called after every evaluation; returns columns for its row of the history."""
        return {}

    def on_stall(self, embedder: Any) -> bool:
        """Called when the patience of the protocol is exhausted; True: continue training."""
        return False


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
        on_step: receives the step and the values to log after every step.
    """

    evaluate: Callable[[], Metrics]
    log: Callable[[dict[str, Any], int], None]
    should_stop: Callable[[], RunStopped | None] = lambda: None
    on_step: Callable[[int, dict[str, Tensor]], None] = lambda step, values: None
