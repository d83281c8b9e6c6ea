"""The interfaces between the training loop and its callers: method, configuration, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from dml.core.errors import RunStopped

Metrics = dict[str, float]

# Logged by a step whose loss is empty (`dml.methods.loss_values`); the history has their number.
EMPTY_STEPS = "empty_steps"

# (images per class, number of the pool) -> batches of augmented training images and their labels,
# class by class; equal arguments give equal images.
SamplePool = Callable[[int, int], Iterable[tuple[Tensor, Tensor]]]


class Method(nn.Module):
    """Computes a loss from a batch; subclasses implement `forward` and, optionally, the hooks.

    The parameters are those of the loss. All other state of the training belongs in buffers or in
    `get_extra_state`, in plain types and tensors: checkpoints contain both.

    If several processes share a batch, each of them computes the loss of the whole batch: it gets
    all labels and embeddings (`dml.training.process_group`), but only local images and features.

    Attributes:
        whole: also pass the "images" or "features" of the whole batch.
        on_stage: called by a method with stages at the start of each one; set by whoever needs it.
        loss_constant: constant part of the loss. The history also has the loss without it, in
            which small changes are visible.
    """

    whole: frozenset[str] = frozenset()
    on_stage: Callable[[Any], None] = staticmethod(lambda start: None)
    loss_constant: float = 0.0

    def forward(
        self, embedder: Any, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the loss of images B×3×H×W with labels B, and scalars to log, name → tensor."""
        raise NotImplementedError

    def attach(self, sample_pool: SamplePool) -> None:
        """Receives access to all training images; called once before training starts or resumes."""

    def after_backward(self, embedder: Any) -> None:
        """Called between backward pass and optimizer step; may change the gradients."""

    def on_evaluation(self, embedder: Any, score: float) -> dict[str, float]:
        """Called after every evaluation; returns additional columns of the history."""
        return {}

    def extra_embeddings(
        self, embedder: Any, batches: Iterable[tuple[Tensor, Tensor]]
    ) -> Iterable[Tensor]:
        """Returns unit embeddings V×D that training uses in addition to those of the images."""
        return ()

    def on_stall(self, embedder: Any) -> bool:
        """Called when early stopping would end the training; returns True to continue."""
        return False


@dataclass(frozen=True)
class TrainConfig:
    """Length, evaluation and gradient clipping of a training run.

    Attributes:
        epochs: maximum number of epochs.
        steps_per_epoch: number of steps of an epoch.
        evaluate_every: number of steps between evaluations.
        select_metric: metric that selects the best evaluation; higher is better.
        warmup_epochs: number of first epochs with a frozen backbone.
        clip_value, clip_norm: limits of the network's gradients; None: no limit.
        clip_loss_parameters: also clip the gradients of loss parameters, together with these.
        precision: precision of the network, see `dml.training.device`.
        score_untrained: score the network before training too.
        micro_batch: number of images that the network embeds at a time, see
            `dml.training.micro_batches`; None: the whole batch.
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
    score_untrained: bool = True
    micro_batch: int | None = None

    @property
    def total_steps(self) -> int:
        """Number of steps of all epochs."""
        return self.epochs * self.steps_per_epoch


@dataclass
class Callbacks:
    """Functions that the trainer calls.

    Attributes:
        evaluate: returns the metrics of the network in its current state.
        log: called after every evaluation with a row of metrics and the step.
        should_stop: called after every step; returns the exception to raise after the state is
            saved, or None to continue.
        on_step: called after every step with the step and the values to log.
    """

    evaluate: Callable[[], Metrics]
    log: Callable[[dict[str, Any], int], None]
    should_stop: Callable[[], RunStopped | None] = lambda: None
    on_step: Callable[[int, dict[str, Tensor]], None] = lambda step, values: None
