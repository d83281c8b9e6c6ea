"""State of a training: what a resumed one does with its scheduler."""

import warnings

import torch
from torch import nn

from dml.training.train_state import TrainState


def make_state() -> TrainState:
    embedder = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    return TrainState(embedder, nn.Identity(), optimizer, scheduler)


def test_a_run_resumed_at_the_end_of_its_first_epoch_does_not_warn():
    before = make_state()
    before.optimizer.step()
    after = make_state()
    after.load_state_dict(before.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after.end_epoch()  # before its own first step
    assert after.optimizer.param_groups[0]["lr"] == 0.05
