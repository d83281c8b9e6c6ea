"""Modes of a network between the steps; steps themselves are in `test_trainer.py`."""

import pytest
from torch import nn

from dml.models.frozen_batch_norm import freeze_batch_norm
from dml.training.step import TrainingMode


class Counting(nn.Module):
    """A network that counts the calls of `train`."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
        self.calls = 0

    def train(self, mode: bool = True) -> "Counting":
        self.calls += mode
        return super().train(mode)


@pytest.fixture
def network() -> Counting:
    return Counting()


def test_the_mode_is_set_once_and_after_each_evaluation(network):
    mode = TrainingMode(network)
    for _ in range(3):
        mode.restore()
    assert network.calls == 1
    network.eval()
    mode.restore()
    mode.restore()
    assert network.calls == 2
    assert all(module.training for module in network.modules())


def test_a_part_that_someone_left_in_evaluation_mode_is_set_too(network):
    other = nn.Dropout()
    mode = TrainingMode(network, other)
    mode.restore()
    for part in (network.backbone[1], other):
        part.eval()
        mode.restore()
        assert part.training


def test_frozen_layers_stay_in_evaluation_mode(network):
    network.backbone.append(nn.BatchNorm1d(2))
    freeze_batch_norm(network)
    mode = TrainingMode(network)
    mode.restore()
    mode.restore()
    assert network.calls == 1
    assert not network.backbone[2].training
