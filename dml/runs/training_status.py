"""The lines of a training: a live line of the current step, and one per evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from dml.core.metric_names import metric_label
from dml.core.progress import format_epoch
from dml.core.run_log import run_logger
from dml.runs.console import print_line
from dml.training.interfaces import TrainConfig
from dml.training.stopping import Stopping
from dml.training.train_state import TrainState

READ_SECONDS = 1.0  # between two looks at the loss, each of which waits for the device
LARGE = 1e4  # losses from here on are shown without decimals


@dataclass(frozen=True)
class RunPosition:
    """The position of a model among the models of a run and the trials of a search.

    Attributes:
        repeats, folds: their numbers.
        trial, trials: trials finished so far, and all; 0 trials: no search.
        best: the score of the best trial so far, 0 to 1.
        models_later: models to train after these repeats and folds.
    """

    repeats: int = 1
    folds: int = 1
    trial: int = 0
    trials: int = 0
    best: float | None = None
    models_later: int = 0

    def describe_trial(self) -> str:
        """Returns the trial and the best score so far; empty without a search."""
        if not self.trials:
            return ""
        best = "" if self.best is None else f"best trial {100 * self.best:.2f}  "
        return f"trial {self.trial + 1} of {self.trials}  {best}"

    def describe(self, key: tuple[int, int]) -> str:
        """Returns the position of a model (repeat, fold); empty for a single model."""
        fold = f"fold {key[1] + 1} of {self.folds}  " if self.folds > 1 else ""
        repeat = f"repeat {key[0] + 1} of {self.repeats}  " if self.repeats > 1 else ""
        return self.describe_trial() + fold + repeat

    def show(self, key: tuple[int, int], line: str) -> None:
        """Prints a line about the model (repeat, fold); in a search, the line is only logged."""
        name = f"repeat{key[0]}-fold{key[1]}  " if self.repeats * self.folds > 1 else ""
        if self.trials:
            run_logger.info("trial %d  %s%s", self.trial + 1, name, line)
        else:
            print_line(f"{name}{line}")

    def models_after(self, key: tuple[int, int]) -> int:
        """Returns the number of models to train after this one."""
        number = key[0] * self.folds + key[1]
        return self.repeats * self.folds - number - 1 + self.models_later


def format_loss(loss: float, constant: float = 0.0) -> str:
    """Returns `loss 0.4312`, or with a constant `loss 69.2726 (69.3147 - 0.0421)`."""
    text = f"loss {loss:.4f}" if abs(loss) < LARGE else f"loss {loss:.4g}"
    if not constant:
        return text
    rest = loss - constant
    return f"{text} ({constant:.4f} {'-' if rest < 0 else '+'} {abs(rest):.4f})"


@dataclass
class TrainingStatus:
    """Shows the steps of a training on the live line, and prints its evaluations.

    Attributes:
        position: of the models of the run.
        key: (repeat, fold) of this one.
        train: length of the training.
        batch_size: images of a step.
        state: learning rates and the constant of the loss.
        best: knows the best evaluation.
        update: see `dml.core.progress.show_task`; set while there is a line.
    """

    position: RunPosition
    key: tuple[int, int]
    train: TrainConfig
    batch_size: int
    state: TrainState
    best: Stopping
    update: Callable[..., None] = lambda **values: None
    _untrained: float = 0.0  # score before training
    _step: int = 0
    _looked: tuple[int, float] = field(default_factory=lambda: (0, time.monotonic()))

    @property
    def place(self) -> str:
        """The position of the model, for the beginning of the line."""
        return self.position.describe(self.key)

    @property
    def total(self) -> int:
        """Steps of this model and of those after it."""
        return self.train.total_steps * (1 + self.position.models_after(self.key))

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
            f"{self.place}epoch {epoch + 1} of {self.train.epochs}  "
            f"step {done + 1} of {self.train.steps_per_epoch}  {loss}  lr {learning_rate:.3g}  "
            f"{rate:,.0f} images/s  {self._describe_best()}"
        )
        self.update(completed=step, description=line)

    def show_evaluation(self, row: Mapping[str, float]) -> None:
        """Prints the line of a row of `history.csv`; those of a search's trials are logged only."""
        metric, epochs = self.train.select_metric, self.train.epochs
        parts = [f"epoch {format_epoch(row['epoch']):>{len(str(epochs))}} of {epochs}"]
        if metric not in row:
            parts += [format_loss(row["loss"])] if "loss" in row else ["untrained"]
            self.position.show(self.key, "  ".join(parts))
            return
        score = f"{metric_label(metric)} {100 * row[metric]:.2f}"
        if "loss" not in row:
            self._untrained = row[metric]
            parts += [score, "untrained"]
        else:
            constant = row["loss"] - row.get("loss_without_constant", row["loss"])
            mark = "best so far" if row[metric] >= self._untrained else "below untrained"
            is_best = round(self.best.best_epoch, 6) == row["epoch"]  # as `history.csv` rounds it
            mark = mark if is_best else self._describe_best()
            parts += [format_loss(row["loss"], constant), score, mark]
        self.position.show(self.key, "  ".join(parts))
        self._looked = self._step, time.monotonic()

    def _describe_best(self) -> str:
        """Returns the best score and its epoch; empty before the first evaluation."""
        best = self.best
        if best.best_score < 0:
            return ""
        return f"best {100 * best.best_score:.2f} in epoch {format_epoch(best.best_epoch)}"
