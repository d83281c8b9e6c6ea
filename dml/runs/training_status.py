"""The lines of a training run: a live line of the current step, and one per evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from dml.core.counts import count_of
from dml.core.metric_names import format_metric, metric_label
from dml.core.progress import format_epoch, format_loss
from dml.core.run_log import run_logger
from dml.runs.console import print_line
from dml.training.interfaces import EMPTY_STEPS, TrainConfig
from dml.training.stopping import NO_SCORE, Stopping
from dml.training.train_state import TrainState

READ_SECONDS = 1.0  # between two looks at the loss, each of which waits for the device


@dataclass(frozen=True)
class Trial:
    """A trial among those of a search.

    Attributes:
        number: its number, from 0.
        total: number of trials.
        best: the value of the metric of the best one so far.
        models_later: models to train after this trial.
        metric: of the search.
    """

    number: int
    total: int
    best: float | None = None
    models_later: int = 0
    metric: str = "map_at_r"

    def describe(self) -> str:
        """Returns the number of the trial, as in files and trackers, and the best score so far."""
        text = f"trial {self.number} ({self.number + 1} of {self.total})  "
        if self.best is not None:
            text += f"best trial {format_metric(self.metric, self.best)}  "
        return text


@dataclass
class TrainingStatus:
    """Shows the steps of a training run on the live line, and prints its evaluations.

    Attributes:
        key: (repeat, fold) of the model.
        models: numbers of repeats and of folds.
        trial: the trial of a search that trains the model; its lines are logged only.
        train: length of the training.
        batch_size: images of a step.
        state: learning rates and the constant of the loss.
        best: knows the best evaluation.
        update: see `dml.core.progress.show_task`; set while there is a line.
        untrained: score before the training.
    """

    key: tuple[int, int]
    models: tuple[int, int]
    trial: Trial | None
    train: TrainConfig
    batch_size: int
    state: TrainState
    best: Stopping
    update: Callable[..., None] = lambda **values: None
    untrained: float = 0.0
    _step: int = 0
    _looked: tuple[int, float] = field(default_factory=lambda: (0, time.monotonic()))

    @property
    def position(self) -> str:
        """Trial, fold and repeat of the model, at the beginning of the line; may be empty."""
        (repeat, fold), (repeats, folds) = self.key, self.models
        text = ""
        if self.trial is not None:
            text += self.trial.describe()
        if folds > 1:
            text += f"fold {fold + 1} of {folds}  "
        if repeats > 1:
            text += f"repeat {repeat + 1} of {repeats}  "
        return text

    @property
    def total(self) -> int:
        """Steps of this model and of those after it."""
        (repeat, fold), (repeats, folds) = self.key, self.models
        later = 0 if self.trial is None else self.trial.models_later
        return self.train.total_steps * (repeats * folds - repeat * folds - fold + later)

    def on_step(self, step: int, values: Mapping[str, Tensor]) -> None:
        """Shows the values of a step, at most once a second."""
        self._step = step
        (before, looked), now = self._looked, time.monotonic()
        if now < looked + READ_SECONDS:
            return
        self._looked = step, now  # also set by evaluations
        epoch, done = divmod(step - 1, self.train.steps_per_epoch)
        rate = (step - before) * self.batch_size / (now - looked)
        constant = float(getattr(self.state.method, "loss_constant", 0.0))
        loss = format_loss(values["loss"].item(), constant)
        learning_rate = next(iter(self.state.learning_rates().values()), 0.0)
        line = (
            f"{self.position}epoch {epoch + 1} of {self.train.epochs}  "
            f"step {done + 1} of {self.train.steps_per_epoch}  {loss}  lr {learning_rate:.3g}  "
            f"{rate:,.0f} images/s  {self._describe_best()}"
        )
        self.update(completed=step, description=line)

    def show_evaluation(self, row: Mapping[str, float]) -> None:
        """Prints the line of a row of `history.csv`."""
        metric, epochs = self.train.select_metric, self.train.epochs
        parts = [f"epoch {format_epoch(row['epoch']):>{len(str(epochs))}} of {epochs}"]
        if "loss" in row:
            constant = row["loss"] - row.get("loss_without_constant", row["loss"])
            parts.append(format_loss(row["loss"], constant))
        if EMPTY_STEPS in row:
            parts.append(count_of(int(row[EMPTY_STEPS]), "empty step"))
        if metric in row:
            parts.append(f"{metric_label(metric)} {format_metric(metric, row[metric])}")
        if "loss" not in row:
            self.untrained = row.get(metric, 0.0)
            parts.append("untrained")
        elif metric in row:
            is_best = round(self.best.best_epoch, 6) == row["epoch"]  # as `history.csv` rounds it
            if not is_best:
                parts.append(self._describe_best())
            elif row[metric] >= self.untrained:
                parts.append("best so far")
            else:
                parts.append("below untrained")
        self._print("  ".join(parts))
        self._looked = self._step, time.monotonic()

    def show_early_stop(self) -> None:
        """Prints that the training has stopped early."""
        patience, unit = self.best.patience, self.best.unit
        unit = unit.removesuffix("s") if patience == 1 else unit
        self._print(f"stopped early: no improvement in {patience} {unit}")

    def _print(self, line: str) -> None:
        name = "repeat{}-fold{}  ".format(*self.key) if self.models != (1, 1) else ""
        if self.trial is None:
            print_line(f"{name}{line}")
        else:
            run_logger.info("trial %d  %s%s", self.trial.number, name, line)

    def _describe_best(self) -> str:
        """Returns the best score and its epoch; empty before the first evaluation."""
        best = self.best
        if best.best_score <= NO_SCORE:
            return ""
        score = format_metric(self.train.select_metric, best.best_score)
        return f"best {score} in epoch {format_epoch(best.best_epoch)}"
