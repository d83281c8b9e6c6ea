"""The training loop: steps, evaluations, the best epoch, and a state that can be put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from dml.core.errors import RunStopped, UserError
from dml.core.fault_injection import fault_point
from dml.training.checkpoint import random_state, set_random_state
from dml.training.clock import StepClock
from dml.training.interfaces import Metrics, Storage, Tracker, TrainConfig
from dml.training.precision import autocast
from dml.training.process_group import ALONE, World
from dml.training.running_means import RunningMeans
from dml.training.step import BatchRefused, TrainingStep
from dml.training.stopping import Stopping


class Trainer:
    """Trains one model.

    Args:
        embedder: the network; its `backbone` rests during warm-up.
        method: see `dml.training.interfaces.Method`.
        optimizer: over both.
        scheduler: stepped once an epoch, a plateau one with the score of each evaluation; or None.
        batches: gives the (images, labels) of the steps from a start to the end of training.
        evaluate: scores the network as it is; None where there is nothing to score on.
        config: see `TrainConfig`.
        stopping: keeps the best score.
        tracker: gets a row per evaluation.
        checkpoints: where the state goes.
        should_stop: asked after every step; what to raise once the state is saved, or None.
        on_step: told after every step, for a progress bar.
        on_interval: told epoch, step and the clock at every evaluation after training steps.
        world: the processes that share each batch; `batches` gives this one's part.
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
        config: TrainConfig,
        stopping: Stopping,
        tracker: Tracker,
        checkpoints: Storage,
        should_stop: Callable[[], RunStopped | None] = lambda: None,
        on_step: Callable[[int], None] = lambda step: None,
        on_interval: Callable[[float, int, StepClock], None] = lambda *place: None,
        world: World = ALONE,
    ) -> None:
        self.embedder, self.method = embedder, method
        self.optimizer, self.scheduler = optimizer, scheduler
        self.batches, self.evaluate = batches, evaluate
        self.config, self.stopping = config, stopping
        self.tracker, self.checkpoints = tracker, checkpoints
        self.should_stop, self.on_step, self.on_interval = should_stop, on_step, on_interval
        self.world = world
        self._train_on = TrainingStep(embedder, method, optimizer, config, world)
        self._means = RunningMeans()
        self.step = 0
        self.rows = 0  # rows of history that belong to the state
        self.finished = False
        self.first_metrics: Metrics = {}
        self.clock = StepClock(_device_of(embedder))

    @property
    def epoch(self) -> float:
        """Epochs done, fractional between their ends."""
        return self.step / self.config.steps_per_epoch

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
        for images, labels in self.clock.watched(self.batches(self.step)):
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
            if self.step % self.config.evaluate_every == 0 or self._at_end:
                self._means.check_finite()
                with self.clock.paused():
                    self._evaluate()
            elif self._epoch_ended:
                self._end_epoch()
            if self.finished:
                break
            stop = self.should_stop()
            if stop is not None:
                self._means.check_finite()
                self.clock.stop()
                self.save()
                raise stop

    def _train_step(self, images: Tensor, labels: Tensor) -> None:
        try:
            values = self._train_on(images, labels, self.epoch < self.config.warmup_epochs)
        except BatchRefused as error:
            self._means.check_finite()  # weights that are NaN come from an earlier step's loss
            raise UserError(f"loss: at step {self.step}: {error}") from error
        self.step += 1
        self._means.update(values, self.step)
        if self.step % 50 == 0:
            self._means.check_finite()

    def _evaluate(self) -> None:
        """Scores, keeps the best, ends the epoch, decides whether to go on, and saves."""
        self.world.check_in_step(self.embedder, self.method)
        metrics = self._score()
        score = metrics[self.config.select_metric]
        if self.stopping.update(score, self.epoch, self.step):
            self._keep_best(metrics)
        rates = {
            f"lr_{group['name']}": group["lr"]
            for group in self.optimizer.param_groups
            if group["name"] in ("backbone", "loss")  # the others share the backbone's
        }
        noted = self.method.on_evaluation(self.embedder, score)  # type: ignore[operator]
        self._log({**self._means.compute_and_reset(), **rates, **noted, **metrics})
        self.on_interval(round(self.epoch, 6), self.step, self.clock)
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
        return self.step >= self.config.epochs * self.config.steps_per_epoch

    @property
    def _epoch_ended(self) -> bool:
        return self.step % self.config.steps_per_epoch == 0

    def _end_epoch(self) -> None:
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        if self.scheduler is not None and not isinstance(self.scheduler, plateau):
            self.scheduler.step()

    def _score(self) -> Metrics:
        self.embedder.eval()
        self.method.eval()
        fault_point("before_evaluation")
        with torch.no_grad(), autocast(self.config.precision, _device_of(self.embedder)):
            metrics = self.evaluate()
        fault_point("after_evaluation")
        return metrics

    def _log(self, metrics: dict[str, Any]) -> None:
        self.tracker.log({"epoch": round(self.epoch, 6), **metrics}, self.step)
        self.rows += 1

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
            **self._means.state_dict(),
            "clock": self.clock.state_dict(),
            "embedder": self.embedder.state_dict(),
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "stopping": self.stopping.state_dict(),
            "random": random_state(_device_of(self.embedder)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` returned."""
        self.step, self.rows, self.finished = state["step"], state["rows"], state["finished"]
        self.first_metrics = state["first_metrics"]
        if "clock" in state:  # earlier versions kept no such thing
            self.clock.load_state_dict(state["clock"])
        device = _device_of(self.embedder)
        self._means.load_state_dict(state, device)
        self.embedder.load_state_dict(state["embedder"])
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self.stopping.load_state_dict(state["stopping"])
        set_random_state(state["random"], device)


def _device_of(module: nn.Module) -> torch.device:
    return next(module.parameters()).device
