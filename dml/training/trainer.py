"""The training loop: steps, evaluations, selection of the best epoch, and checkpoints."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dml.core.errors import RunStopped, UserError, describe_failure
from dml.core.fault_injection import fault_point
from dml.core.waits import NoAnswerError
from dml.training.checkpoint_files import Checkpoints
from dml.training.device import autocast
from dml.training.interfaces import EMPTY_STEPS, Callbacks, Metrics, TrainConfig
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup
from dml.training.step import TrainingStep
from dml.training.stopping import NO_SCORE, Stopping
from dml.training.train_state import TrainState, random_state, set_random_state

ONE_IMAGE = "Expected more than 1 value per channel"  # of torch's BatchNorm
CHECK_EVERY = 50  # steps between checks for a finite loss, which wait for the device


class Trainer:
    """Trains one model.

    Args:
        state: network, method, optimizer and scheduler.
        config: length, evaluation and gradient clipping.
        batches: returns the batches (images, labels) from a given step to the end.
        stopping: early stopping and the best score.
        checkpoints: files of the saved state.
        callbacks: evaluation, logging and stop requests.
        world: the processes that share each batch; `batches` returns the part of this process.
    """

    def __init__(
        self,
        state: TrainState,
        config: TrainConfig,
        batches: Callable[[int], Iterable[tuple[Tensor, Tensor]]],
        stopping: Stopping,
        checkpoints: Checkpoints,
        callbacks: Callbacks,
        world: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        self.state, self.config, self.batches = state, config, batches
        self.stopping, self.checkpoints, self.callbacks = stopping, checkpoints, callbacks
        self.world = world
        self._train_on = TrainingStep(state, config, world)
        self._means = RunningMeans()
        self.step = 0
        self.rows = 0  # rows of the history up to this state
        self.finished = False
        self.evaluation_is_due = False  # a stop interrupted the evaluation of this step
        self.first_metrics: Metrics = {}
        self.seconds = 0.0  # of all steps, including the loading of their batches
        self._started: float | None = None

    @property
    def epoch(self) -> float:
        """Number of completed epochs, fractional within an epoch."""
        return self.step / self.config.steps_per_epoch

    def fit(self) -> None:
        """Trains from the current state to the end, and waits until the checkpoints are on disk.

        Raises:
            RunStopped: `should_stop` returned it, or a wait for images; the state is saved.
            UserError: the loss is not finite, or a checkpoint could not be written; the previous
                checkpoint is kept.
        """
        try:
            if self.step == 0 and self.rows == 0:
                self._score_untrained()
            if self.evaluation_is_due:
                self._evaluate()
            self._started = time.perf_counter()
            for images, labels in self._load_batches():
                fault_point("before_step")
                with self._translate_step_errors(len(images)):
                    warming_up = self.epoch < self.config.warmup_epochs
                    values = self._train_on(images, labels, warming_up)
                    self.state.end_step()
                    self.step += 1
                    self._means.update(values, self.step)
                    if self.step % CHECK_EVERY == 0:
                        self._means.check_finite()
                fault_point("after_step")
                self.callbacks.on_step(self.step, values)
                if self.step % self.config.evaluate_every == 0 or self._at_end:
                    self._means.check_finite()
                    self._pause_clock()
                    self._evaluate()
                    self._started = time.perf_counter()
                elif self._epoch_ended:
                    self.state.end_epoch()
                if self.finished:
                    break
                stop = self.callbacks.should_stop()
                if stop is not None:
                    self._save_before_stop()
                    raise stop
            self.checkpoints.wait()
        finally:  # after an error, possibly only on this process: not with the others
            self.checkpoints.wait_quietly()

    def _load_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the remaining batches; saves the state where one is awaited in vain."""
        if self.finished:
            return
        try:
            yield from self.batches(self.step)
        except (RunStopped, NoAnswerError):
            if self.world.size == 1:  # else the others are in the middle of a step
                self._save_before_stop()
            raise

    def _score_untrained(self) -> None:
        """Scores the network before training, if that is asked for or there are no epochs."""
        if not self.config.score_untrained and not self._at_end:
            return
        self.first_metrics = self._score()
        self._log(self.first_metrics)
        if self._at_end:  # no epochs: the untrained network is the result
            self._keep_best(self.first_metrics)
            self.finished = True
        self.save()

    def _save_before_stop(self) -> None:
        self._means.check_finite()
        self._pause_clock()
        self.save()
        self.checkpoints.wait()

    @contextmanager
    def _translate_step_errors(self, batch_size: int) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            self._means.check_finite()  # NaN weights come from the loss of an earlier step
            if ONE_IMAGE in str(error):
                option = "data.micro_batch" if self.config.micro_batch else "data.batch_size"
                raise UserError(
                    f"{option}: BatchNorm cannot train on one image at a time (step {self.step}); "
                    f"use 2 or more, or embedder.freeze_batch_norm=true"
                ) from error
            is_ours = type(self.state.method).__module__.startswith("dml.")
            option, failure = "loss" if is_ours else "method", describe_failure(error)
            raise UserError(
                f"{option}: at step {self.step}: {failure}; the last checkpoint is kept, where "
                f"values are not finite try a smaller optim.lr"
            ) from error
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"data.batch_size: {batch_size} images do not fit into the GPU's memory; "
                f"try data.micro_batch=32, precision=bf16, a smaller batch, or a smaller backbone"
            ) from error

    def _evaluate(self) -> None:
        """Scores the network, keeps the best, ends the epoch, checks early stopping, and saves."""
        state = self.state
        metrics = self._score_or_save()
        self.checkpoints.wait()  # the history is at most one row ahead of the checkpoints
        score, is_best = self.epoch, True  # without scores the last evaluation counts
        if metrics:
            score = metrics.get(self.config.select_metric, NO_SCORE)
            is_best = self.stopping.update(score, self.epoch, self.step)
        if is_best:
            self._keep_best(metrics)
        means = self._means.compute_and_reset()
        constant = state.method.loss_constant
        if constant:
            means["loss_without_constant"] = means["loss"] - constant
        with state.averaged():  # the weights that were scored
            extra = _check_numbers(state.method.on_evaluation(state.embedder, score))
        self._log({**means, **state.learning_rates(), **extra, **metrics})
        state.end_evaluation(score)
        if self._epoch_ended:
            state.end_epoch()
        self.finished = self._at_end or (
            self.stopping.exhausted(self.epoch) and not state.method.on_stall(state.embedder)
        )
        self.save()

    def _score_or_save(self) -> Metrics:
        """Returns the scores; where a stop interrupts them, saves the state before them."""
        random, self.evaluation_is_due = random_state(self.state.device), True
        try:
            metrics = self._score()
        except (RunStopped, NoAnswerError):
            if self.world.size == 1:
                set_random_state(random, self.state.device)
                self._save_before_stop()
            raise
        self.evaluation_is_due = False
        return metrics

    def _pause_clock(self) -> None:
        """Adds the time since the last evaluation; reading the loss has synchronized the GPU."""
        if self._started is not None:
            self.seconds += time.perf_counter() - self._started
            self._started = None

    @property
    def _at_end(self) -> bool:
        return self.step >= self.config.total_steps

    @property
    def _epoch_ended(self) -> bool:
        return self.step % self.config.steps_per_epoch == 0

    def _score(self) -> Metrics:
        self.state.train(False)
        precision = autocast(self.config.precision, self.state.device)
        with self.state.averaged(), torch.no_grad(), precision:
            metrics = self.callbacks.evaluate()
        fault_point("after_evaluation")
        return metrics

    def _log(self, metrics: dict[str, Any]) -> None:
        self.callbacks.log({"epoch": round(self.epoch, 6), **metrics}, self.step)
        self.rows += 1

    def _keep_best(self, metrics: Metrics) -> None:
        progress = {"step": self.step, "epoch": self.epoch, "metrics": metrics}
        self.checkpoints.keep_best({**progress, **self.state.weights()})

    def save(self) -> None:
        """Copies the state, which is written while training continues."""
        self.checkpoints.save(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Returns the complete state of the training, in plain types and tensors."""
        return {
            "step": self.step,
            "rows": self.rows,
            "finished": self.finished,
            "evaluation_is_due": self.evaluation_is_due,
            "first_metrics": self.first_metrics,
            **self._means.state_dict(),
            "seconds": self.seconds,
            **self.state.state_dict(),
            "stopping": self.stopping.state_dict(),
            "random": random_state(self.state.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self.step, self.rows, self.finished = state["step"], state["rows"], state["finished"]
        self.evaluation_is_due = state["evaluation_is_due"]
        self.first_metrics = state["first_metrics"]
        self.seconds = state["seconds"]
        self._means.load_state_dict(state, self.state.device)
        self.state.load_state_dict(state)
        self.stopping.load_state_dict(state["stopping"])
        set_random_state(state["random"], self.state.device)


class RunningMeans:
    """Running means with sums on the device, so that no step waits for the previous one."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: Counter[str] = Counter()  # steps that had a value
        self._bad_step: Tensor | None = None

    def update(self, values: dict[str, Tensor], step: int) -> None:
        """Adds the values of one step, including `loss`."""
        for name, value in values.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()
        self._counts.update(values.keys())
        bad = torch.where(torch.isfinite(values["loss"]), math.inf, float(step))
        self._bad_step = bad if self._bad_step is None else torch.minimum(self._bad_step, bad)

    def check_finite(self) -> None:
        """Checks that all losses so far are finite; waits for the device.

        Raises:
            UserError: a loss was not finite; the message names the step.
        """
        if self._bad_step is not None and math.isfinite(bad := self._bad_step.item()):
            option, advice = (
                "optim.lr",
                "try a smaller optim.lr or optim.loss_lr; a mean over no pairs is NaN, too",
            )
            if bad == 1:  # before a weight has changed
                option, advice = "loss", "check the images and the options of the loss"
            raise UserError(
                f"{option}: the loss is not finite from step {int(bad)} on; the checkpoint before "
                f"it is kept, {advice}"
            )

    def compute_and_reset(self) -> dict[str, float]:
        """Returns the means, and the number of empty steps if there are any; resets the sums.

        The mean of a value is that of the steps that had it.
        """
        means = {}
        for name, total in self._sums.items():
            means[name] = (total / self._counts[name]).item()
        if EMPTY_STEPS in means:
            means[EMPTY_STEPS] = int(self._sums[EMPTY_STEPS].item())
        self._sums, self._counts = {}, Counter()
        return means

    def state_dict(self) -> dict[str, Any]:
        """Returns the sums, in plain types and tensors."""
        return {"sums": self._sums, "counts": dict(self._counts)}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restores the result of `state_dict`."""
        self._sums = {name: value.to(device) for name, value in state["sums"].items()}
        self._counts = Counter(state["counts"])


def _check_numbers(extra: Any) -> Metrics:
    """Returns what `on_evaluation` of a method returned; raises UserError for no numbers."""
    if not isinstance(extra, Mapping) or any(isinstance(x, str) for x in extra.values()):
        raise UserError(f"method: on_evaluation must return a dict of numbers, not {extra!r}")
    return dict(extra)
