from types import SimpleNamespace

import pytest
import torch

from dml.core.progress import fit_parts
from dml.runs import training_status
from dml.runs.training_status import RunPosition, TrainingStatus, describe_evaluation
from dml.training.clock import TimeSpent
from dml.training.interfaces import TrainConfig
from dml.training.stopping import Stopping

LENGTH = TrainConfig(epochs=60, steps_per_epoch=120, evaluate_every=120)


@pytest.fixture
def now(monkeypatch):
    """Time that passes only where a test says so."""
    passed = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(training_status.time, "monotonic", lambda: passed.seconds)
    return passed


def train(now, position=RunPosition(), *, steps=245, constant=0.0, loss=0.5):  # noqa: B008
    """The status after a number of steps of half a second, of which a fifth is waiting."""
    state = SimpleNamespace(
        method=SimpleNamespace(loss_constant=constant),
        learning_rates=lambda: {"lr_backbone": 1e-4, "lr_loss": 0.2},
    )
    best = Stopping(None)
    best.update(0.431, 1.0, 120)
    key = (position.repeats // 2, position.folds // 2)
    status = TrainingStatus(position, key, LENGTH, 32, state, best)
    spent = TimeSpent()
    clock = SimpleNamespace(read=lambda: TimeSpent(spent.steps, spent.seconds, spent.waiting))
    for step in range(1, steps + 1):
        now.seconds += 0.5
        spent.steps, spent.seconds, spent.waiting = step, step / 2, step / 10
        status.on_step(step, {"loss": torch.tensor(loss)}, clock)
    return status


def line(status, width):
    return fit_parts(status(), width)


def test_the_line_of_a_training(now):
    status = train(now)
    assert line(status, 140) == (
        "epoch 3 of 60  step 5 of 120  loss 0.5000  lr 0.0001  64 images/s  waiting 20 %  "
        "best 43.10 in epoch 1  epoch 0:58 left  run 57:58 left"
    )
    assert line(status, 80) == (
        "epoch 3 of 60  loss 0.5000  64 images/s  best 43.10 in epoch 1  run 57:58 left"
    )
    assert line(status, 40) == "epoch 3 of 60  loss 0.5000"


def test_the_line_of_a_loss_with_a_constant(now):
    status = train(now, constant=69.3147, loss=69.2726)
    assert "loss 69.2726 (69.3147 - 0.0421)" in " ".join(line(status, 200).split())


def test_the_line_of_a_search(now):
    status = train(now, RunPosition(folds=4, trial=6, trials=50, best=0.4312))
    assert line(status, 200).startswith("trial 7 of 50  best trial 43.12  fold 3 of 4  epoch 3")
    assert line(status, 80).startswith("trial 7 of 50  fold 3 of 4  epoch 3 of 60  loss 0.5000")


def test_the_line_before_the_first_step():
    state = SimpleNamespace(method=None, learning_rates=dict)
    status = TrainingStatus(RunPosition(), (0, 0), LENGTH, 32, state, Stopping(None))
    assert line(status, 80) == "epoch 1 of 60"


def test_every_step_reaches_the_process_that_watches(now):
    epochs = []
    train(now, RunPosition(on_epoch=epochs.append), steps=3)
    assert epochs == [1 / 120, 2 / 120, 3 / 120]


def test_evaluations():
    best = Stopping(None)
    rows = [
        {"epoch": 0.0, "map_at_r": 0.1},
        {"epoch": 0.609756, "map_at_r": 0.3, "loss": 9.5, "loss_without_constant": 0.5},
        {"epoch": 2.0, "map_at_r": 0.2, "loss": 0.25},
    ]
    lines = []
    for row in rows:
        if "loss" in row:
            best.update(row["map_at_r"], round(41 * row["epoch"]) / 41, 0)  # `row` is rounded
        lines.append(describe_evaluation(row, 10, "map_at_r", best))
    assert lines == [
        "epoch  0 of 10  MAP@R 10.00  untrained",
        "epoch 0.61 of 10  loss 9.5000 (9.0000 + 0.5000)  MAP@R 30.00  best so far",
        "epoch  2 of 10  loss 0.2500  MAP@R 20.00  best 30.00 in epoch 0.61",
    ]


def test_large_losses_stay_short():
    assert training_status.format_loss(3792070.75) == "loss 3.792e+06"
