"""The lines of a training: one for the present, and one of each evaluation, which stays."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dml.core.metric_names import metric_label
from dml.core.progress import Part, format_epoch, format_seconds
from dml.core.run_logger import run_logger
from dml.runs.console import print_line
from dml.training.clock import StepClock, TimeSpent
from dml.training.interfaces import TrainConfig
from dml.training.stopping import Stopping
from dml.training.train_state import TrainState

READ_SECONDS = 1.0  # between two looks at the loss, each of which waits for the device
KEPT_PER_STEP = 0.98  # of the smoothed loss
WINDOW = 10  # looks that the speed is measured over
LARGE = 1e4  # losses from here on are shown without decimals
MUCH_WAITING = 0.3  # share of the time


@dataclass(frozen=True)
class RunPosition:
    """The place of a model among the models of a run and the trials of a search.

    Attributes:
        repeats, folds: their numbers.
        trial, trials: trials finished so far, and all; 0 trials: no search.
        best: the score of the best trial so far, 0 to 1.
        models_later: models to train after these repeats and folds.
        on_epoch: receives the completed epochs of a model, with fractions, after every step.
    """

    repeats: int = 1
    folds: int = 1
    trial: int = 0
    trials: int = 0
    best: float | None = None
    models_later: int = 0
    on_epoch: Callable[[float], None] = lambda epoch: None

    def search_parts(self) -> list[Part]:
        """Returns the trial and the best score so far; nothing where there is no search."""
        if not self.trials:
            return []
        best = "" if self.best is None else f"best trial {100 * self.best:.2f}"
        return [Part(f"trial {self.trial + 1} of {self.trials}", 85), Part(best, 65)]

    def parts(self, key: tuple[int, int]) -> list[Part]:
        """Returns the place of the model (repeat, fold); nothing for a single model."""
        parts = self.search_parts()
        if self.folds > 1:
            parts.append(Part(f"fold {key[1] + 1} of {self.folds}", 82))
        if self.repeats > 1:
            parts.append(Part(f"repeat {key[0] + 1} of {self.repeats}", 81))
        return parts

    def show(self, key: tuple[int, int], line: str) -> None:
        """Prints a line about the model (repeat, fold); in a search it is logged only."""
        name = f"repeat{key[0]}-fold{key[1]}  " if self.repeats * self.folds > 1 else ""
        if self.trials:
            run_logger.info("trial %d  %s%s", self.trial + 1, name, line)
        else:
            print_line(f"{name}{line}")

    def models_after(self, key: tuple[int, int]) -> int:
        """Returns the number of models to train after this one."""
        number = key[0] * self.folds + key[1]
        return self.repeats * self.folds - number - 1 + self.models_later


def describe_evaluation(
    row: Mapping[str, float], epochs: int, metric: str, best: Stopping, untrained: float = 0.0
) -> str:
    """Returns the line of an evaluation.

    Args:
        row: of `history.csv`.
        epochs: of the training.
        metric: the score to show.
        best: knows the best evaluation, this one included.
        untrained: score before training; 0 where it is not known.
    """
    text = f"epoch {format_epoch(row['epoch']):>{len(str(epochs))}} of {epochs}"
    score = f"{metric_label(metric)} {100 * row[metric]:.2f}"
    if "loss" not in row:
        return f"{text}  {score}  untrained"
    loss = format_loss(row["loss"], row["loss"] - row.get("loss_without_constant", row["loss"]))
    is_best = round(best.best_epoch, 6) == row["epoch"]  # as `history.csv` rounds it
    mark = "best so far" if row[metric] >= untrained else "below untrained"
    mark = mark if is_best else describe_best(best)
    return f"{text}  {loss}  {score}  {mark}"


def describe_best(best: Stopping) -> str:
    """Returns the best score and its epoch; empty before the first evaluation."""
    if best.best_score < 0:
        return ""
    return f"best {100 * best.best_score:.2f} in epoch {format_epoch(best.best_epoch)}"


def format_loss(loss: float, constant: float = 0.0) -> str:
    """Returns `loss 0.4312`, or with a constant `loss 69.2726 (69.3147 - 0.0421)`."""
    text = f"loss {loss:.4f}" if abs(loss) < LARGE else f"loss {loss:.4g}"
    if not constant:
        return text
    rest = loss - constant
    return f"{text} ({constant:.4f} {'-' if rest < 0 else '+'} {abs(rest):.4f})"


class TrainingStatus:
    """The state of a training, for the line about the work in progress; prints its evaluations.

    Args:
        position: of the models of the run.
        key: (repeat, fold) of this one.
        train: length of the training.
        batch_size: images of a step.
        state: learning rates and the constant of the loss.
        best: knows the best evaluation.
    """

    def __init__(
        self,
        position: RunPosition,
        key: tuple[int, int],
        train: TrainConfig,
        batch_size: int,
        state: TrainState,
        best: Stopping,
    ) -> None:
        self.position, self.key = position, key
        self.train, self.batch_size, self.state, self.best = train, batch_size, state, best
        self.place, self.models_after = position.parts(key), position.models_after(key)
        self.constant = float(getattr(state.method, "loss_constant", 0.0))
        self.step = 0
        self._untrained = 0.0
        self._losses: list[Tensor] = []
        self._loss = _SmoothedMean()
        self._first: tuple[int, float] | None = None  # step and time
        self._pace = 0.0  # seconds per step, with evaluations
        self._looked = 0.0
        self._looks: deque[TimeSpent] = deque(maxlen=WINDOW)
        self._rate = TimeSpent()
        self._learning_rate = 0.0

    def on_step(self, step: int, values: Mapping[str, Tensor], clock: StepClock) -> None:
        """Receives the values of a step; looks at them once in a while."""
        now = time.monotonic()
        self.step = step
        self.position.on_epoch(step / self.train.steps_per_epoch)
        self._losses.append(values["loss"])
        if self._first is None:
            self._first = step, now
        if now < self._looked + READ_SECONDS:
            return
        self._looked = now
        self._loss.add(torch.stack(self._losses).mean().item(), len(self._losses))
        self._losses.clear()
        self._look_at_clock(clock)
        first_step, started = self._first
        self._pace = (now - started) / max(1, step - first_step)
        self._learning_rate = next(iter(self.state.learning_rates().values()), 0.0)

    def _look_at_clock(self, clock: StepClock) -> None:
        self._looks.append(clock.read())
        first, last = self._looks[0], self._looks[-1]
        if last.steps > first.steps:
            self._rate = last.since(first)

    def show_evaluation(self, row: Mapping[str, float]) -> None:
        """Prints the line of an evaluation; those of a search's trials are logged only."""
        metric = self.train.select_metric
        if "loss" not in row:
            self._untrained = row[metric]
        line = describe_evaluation(row, self.train.epochs, metric, self.best, self._untrained)
        self.position.show(self.key, line)

    def __call__(self) -> list[Part]:
        """Returns the parts of the line."""
        train, step = self.train, self.step
        epoch, done = divmod(step, train.steps_per_epoch)
        if done == 0 and step > 0:  # at the end of an epoch
            epoch, done = epoch - 1, train.steps_per_epoch
        parts = [
            *self.place,
            Part(f"epoch {min(epoch + 1, train.epochs)} of {train.epochs}", 100),
            Part(f"step {done} of {train.steps_per_epoch}" if step else "", 40),
        ]
        if self._loss.weight:
            parts += self._loss_parts()
            parts += self._speed_parts()
            parts.append(Part(describe_best(self.best), 70))
        if self._pace:
            of_epoch = (train.steps_per_epoch - done) * self._rate.seconds_per_step
            of_run = train.total_steps * (1 + self.models_after) - step
            parts.append(Part(f"epoch {format_seconds(of_epoch)} left", 30))
            parts.append(Part(f"run {format_seconds(of_run * self._pace)} left", 80))
        return parts

    def _loss_parts(self) -> Iterable[Part]:
        loss, _, constant = format_loss(self._loss.mean, self.constant).partition(" (")
        yield Part(loss, 90)
        yield Part(constant and f"({constant}", 60)

    def _speed_parts(self) -> Iterable[Part]:
        share = self._rate.waiting_share
        yield Part(f"lr {self._learning_rate:.3g}", 35)
        if self._rate.steps:
            yield Part(f"{self._rate.images_per_second(self.batch_size):,.0f} images/s", 62)
            yield Part(f"waiting {100 * share:.0f} %", 75 if share > MUCH_WAITING else 25)


class _SmoothedMean:
    """An exponential mean over steps, not drawn to 0 by its start."""

    def __init__(self) -> None:
        self._sum = self.weight = 0.0

    @property
    def mean(self) -> float:
        return self._sum / self.weight

    def add(self, value: float, steps: int) -> None:
        """Adds the mean of a number of steps."""
        kept = KEPT_PER_STEP**steps
        self._sum = kept * self._sum + (1 - kept) * value
        self.weight = kept * self.weight + (1 - kept)
