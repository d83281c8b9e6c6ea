"""The checks of this folder fail when a mistake is planted into a loss, the trainer, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dml.losses import C1Loss
from dml.runs.evaluator import SplitEmbeddings
from dml.training.step import TrainingStep
from tests.losses.all_losses import LOSSES
from tests.pretended_cuda import test_evaluation, test_losses, test_runs
from tests.pretended_cuda.test_runs import around_steps

__all__ = ["around_steps"]  # a fixture

# They change no number on a CPU.
MISTAKES: dict[str, Callable[[Tensor], Tensor]] = {
    ".cpu()": lambda x: x.cpu().to(x.device),
    ".item()": lambda x: x * (1.0 if x.flatten()[0].item() < 1e9 else 0.0),
    "a tensor of the CPU": lambda x: x + torch.zeros(x.shape),
}


def noticed() -> Any:
    """A wait at a line of this file, or an operation that mixes devices."""
    return pytest.raises((AssertionError, RuntimeError), match=r"test_planted_mistakes|same device")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_loss_is_noticed(mistake, monkeypatch):
    pair_loss, change = C1Loss.pair_loss, MISTAKES[mistake]

    def flawed(self: C1Loss, x_BD: Tensor, *more: Any) -> Tensor:
        return pair_loss(self, change(x_BD), *more)

    monkeypatch.setattr(C1Loss, "pair_loss", flawed)
    with noticed():
        test_losses.check(LOSSES["c1"](), lambda x, y: {}, 1)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_trainer_is_noticed(mistake, run_tiny, around_steps, monkeypatch):
    loss, change = TrainingStep._loss, MISTAKES[mistake]

    def flawed(self: TrainingStep, images: Tensor, labels: Tensor) -> Any:
        return loss(self, change(images), labels)

    monkeypatch.setattr(TrainingStep, "_loss", flawed)
    with noticed():
        test_runs.test_a_trainer_does_not_wait_at_its_steps(run_tiny, around_steps, ())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_evaluator_is_noticed(mistake, monkeypatch):
    score, change = SplitEmbeddings.score, MISTAKES[mistake]

    def flawed(self: SplitEmbeddings, *more: Any) -> dict[str, float]:
        for row in self.query.unbind():  # once per image
            change(row)
        return score(self, *more)

    monkeypatch.setattr(SplitEmbeddings, "score", flawed)
    with noticed():
        test_evaluation.test_waits_of_an_evaluation_do_not_grow_with_its_images()
