"""The training loop: steps, evaluations, the best epoch, and a state that can be put back."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dml.errors import RunStopped, UserError
from dml.faults import fault_point
from dml.training.checkpoint import Checkpoints, random_state, set_random_state
from dml.training.stopping import Stopping

Metrics = dict[str, float]


class Method(Protocol):
    """How a batch becomes a loss; an `nn.Module` whose parameters are the loss's."""

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


class Tracker(Protocol):
    """Takes one row of metrics at a time."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Keeps one row."""
        ...


@dataclass(frozen=True)
class Plan:
    """How long to train and how to move the weights.

    Attributes:
        epochs: at most.
        steps_per_epoch: steps that count as an epoch.
        evaluate_every: steps between evaluations.
        select_metric: the score that picks the best evaluation; larger is better.
        warmup_epochs: the backbone rests for that long.
        clip_value, clip_norm: limits of the network's gradients; None: none.
        precision: `fp32`, or `bf16`: the network under autocast.
    """

    epochs: int
    steps_per_epoch: int
    evaluate_every: int
    select_metric: str = "map_at_r"
    warmup_epochs: int = 0
    clip_value: float | None = None
    clip_norm: float | None = None
    precision: str = "fp32"


class Trainer:
    """Trains one model.

    Args:
        embedder: the network; its `backbone` rests during warm-up.
        method: see `Method`.
        optimizer: over both.
        scheduler: stepped once an epoch, a plateau one with the score of each evaluation; or None.
        batches: gives the (images, labels) of the steps from a start to the end of training.
        evaluate: scores the network as it is; None where there is nothing to score on.
        plan: see `Plan`.
        stopping: keeps the best score.
        tracker: gets a row per evaluation.
        checkpoints: where the state goes.
        should_stop: asked after every step; what to raise once the state is saved, or None.
        on_step: told after every step, for a progress bar.
    """

    STATE = ("rows", "optimizer", "stopping", "random")  # what only a state to go on from holds

    def __init__(
        self,
        embedder: nn.Module,
        method: nn.Module,
        optimizer: Optimizer,
        scheduler: Any,
        batches: Callable[[int], Iterable[tuple[Tensor, Tensor]]],
        evaluate: Callable[[], Metrics],
        plan: Plan,
        stopping: Stopping,
        tracker: Tracker,
        checkpoints: Checkpoints,
        should_stop: Callable[[], RunStopped | None] = lambda: None,
        on_step: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.embedder, self.method = embedder, method
        self.optimizer, self.scheduler = optimizer, scheduler
        self.batches, self.evaluate = batches, evaluate
        self.plan, self.stopping = plan, stopping
        self.tracker, self.checkpoints = tracker, checkpoints
        self.should_stop, self.on_step = should_stop, on_step
        self.step = 0
        self.rows = 0  # rows of history that belong to the state
        self.finished = False
        self.first_metrics: Metrics = {}
        self._trainable = [p for p in embedder.backbone.parameters() if p.requires_grad]  # type: ignore[union-attr]
        self._resting = False
        self._sums: dict[str, Tensor] = {}
        self._since = 0  # steps since the last evaluation
        self.seconds = 0.0  # spent on training steps and waiting for their images
        self._bad_step: Tensor | None = None

    @property
    def epoch(self) -> float:
        """Epochs done, fractional between their ends."""
        return self.step / self.plan.steps_per_epoch

    def fit(self) -> None:
        """Trains to the end, from wherever the state is.

        Raises:
            RunStopped: `should_stop` asked for it; the state is saved.
            UserError: the loss is no longer finite; the last good checkpoint is kept.
        """
        if self.step == 0 and self.rows == 0:
            self.first_metrics = self._score()
            self._log(self.first_metrics)
            if self._at_end:  # no epochs: the network as it comes
                self._keep_best(self.first_metrics)
                self.finished = True
            self.save()
        if self.finished:
            return
        begun = time.perf_counter()
        for images, labels in self.batches(self.step):
            fault_point("before_step")
            try:
                self._train_step(images, labels)
            except torch.OutOfMemoryError as error:
                raise UserError(
                    f"data.batch_size: {len(images)} images do not fit into the GPU's memory; "
                    f"try precision=bf16, a smaller batch, or a smaller backbone"
                ) from error
            fault_point("after_step")
            self.on_step(self.step)
            if self.step % self.plan.evaluate_every == 0 or self._at_end:
                self.seconds += time.perf_counter() - begun
                self._check_finite()
                self._evaluate()
                begun = time.perf_counter()
            elif self._epoch_ended:
                self._end_epoch()
            if self.finished:
                break
            stop = self.should_stop()
            if stop is not None:
                self._check_finite()
                self.save()
                raise stop

    def _train_step(self, images: Tensor, labels: Tensor) -> None:
        self._rest_backbone(self.epoch < self.plan.warmup_epochs)
        self.embedder.train()
        self.method.train()
        try:
            with autocast(self.plan.precision, images.device):
                loss, logs = self.method(self.embedder, images, labels)
        except ValueError as error:
            self._check_finite()  # weights that are NaN come from an earlier step's loss
            raise UserError(f"loss: at step {self.step}: {error}") from error
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.method.after_backward(self.embedder)  # type: ignore[operator]
        if self.plan.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.embedder.parameters(), self.plan.clip_norm)
        if self.plan.clip_value is not None:
            nn.utils.clip_grad_value_(self.embedder.parameters(), self.plan.clip_value)
        self.optimizer.step()
        self.step += 1
        self._note({"loss": loss.detach(), **logs})

    def _rest_backbone(self, rest: bool) -> None:
        if rest != self._resting:
            for parameter in self._trainable:
                parameter.requires_grad_(not rest)
            self._resting = rest

    def _evaluate(self) -> None:
        """Scores, keeps the best, ends the epoch, decides whether to go on, and saves."""
        metrics = self._score()
        score = metrics[self.plan.select_metric]
        if self.stopping.update(score, self.epoch, self.step):
            self._keep_best(metrics)
        logs = {name: (total / self._since).item() for name, total in self._sums.items()}
        rates = {
            f"lr_{group['name']}": group["lr"]
            for group in self.optimizer.param_groups
            if group["name"] in ("backbone", "loss")  # the others share the backbone's
        }
        noted = self.method.on_evaluation(self.embedder, score)  # type: ignore[operator]
        self._log({**logs, **rates, **noted, **metrics})
        self._sums, self._since = {}, 0
        if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(score)
        if self._epoch_ended:
            self._end_epoch()
        if self._at_end or (
            self.stopping.exhausted(self.epoch) and not self.method.on_stall(self.embedder)  # type: ignore[operator]
        ):
            self.finished = True
        self.save()

    def _keep_best(self, metrics: Metrics) -> None:
        self.checkpoints.save_best(
            {
                "step": self.step,
                "epoch": self.epoch,
                "metrics": metrics,
                "embedder": self.embedder.state_dict(),
                "method": self.method.state_dict(),
            }
        )

    @property
    def _at_end(self) -> bool:
        return self.step >= self.plan.epochs * self.plan.steps_per_epoch

    @property
    def _epoch_ended(self) -> bool:
        return self.step % self.plan.steps_per_epoch == 0

    def _end_epoch(self) -> None:
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        if self.scheduler is not None and not isinstance(self.scheduler, plateau):
            self.scheduler.step()

    def _score(self) -> Metrics:
        self.embedder.eval()
        self.method.eval()
        fault_point("before_evaluation")
        with torch.no_grad(), autocast(self.plan.precision, _device_of(self.embedder)):
            metrics = self.evaluate()
        fault_point("after_evaluation")
        return metrics

    def _log(self, metrics: dict[str, Any]) -> None:
        self.tracker.log({"epoch": round(self.epoch, 6), **metrics}, self.step)
        self.rows += 1

    def _note(self, values: dict[str, Tensor]) -> None:
        """Sums up what is logged as the mean since the last evaluation, without a device sync."""
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()
        self._since += 1
        bad = torch.where(torch.isfinite(values["loss"]), math.inf, float(self.step))
        self._bad_step = bad if self._bad_step is None else torch.minimum(self._bad_step, bad)
        if self.step % 50 == 0:
            self._check_finite()

    def _check_finite(self) -> None:
        if self._bad_step is not None and math.isfinite(self._bad_step.item()):
            raise UserError(
                f"optim.lr: the loss is not finite from step {int(self._bad_step.item())} on; "
                f"the checkpoint before it is kept, try a smaller optim.lr or optim.loss_lr"
            )

    def save(self) -> None:
        """Writes the last checkpoint."""
        self.checkpoints.save(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the future, in plain types and tensors."""
        return {
            "step": self.step,
            "rows": self.rows,
            "finished": self.finished,
            "first_metrics": self.first_metrics,
            "sums": self._sums,
            "since": self._since,
            "seconds": self.seconds,
            "embedder": self.embedder.state_dict(),
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "stopping": self.stopping.state_dict(),
            "random": random_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` returned."""
        self.step, self.rows, self.finished = state["step"], state["rows"], state["finished"]
        self.first_metrics, self._since = state["first_metrics"], state["since"]
        self.seconds = state["seconds"]
        device = _device_of(self.embedder)
        self._sums = {name: value.to(device) for name, value in state["sums"].items()}
        self.embedder.load_state_dict(state["embedder"])
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.stopping.load_state_dict(state["stopping"])
        set_random_state(state["random"])


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The network's arithmetic: float32, or bfloat16 where torch considers it safe."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def _device_of(module: nn.Module) -> torch.device:
    return next(module.parameters()).device
