"""Arguments that losses accept and refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dml.losses import CentersRegularizer, MeanFieldNCALoss, PotentialFieldLoss
from tests.losses.all_losses import LOSSES, batch

INTEGERS = [
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return LOSSES[request.param]()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_labels_of_any_integer_type(loss: nn.Module, dtype: torch.dtype) -> None:
    x, y = batch()
    assert torch.equal(loss(x, y.to(dtype)), loss(x, y))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
def test_a_small_integer_type_counts_more_classes_than_it_holds(dtype: torch.dtype) -> None:
    loss = MeanFieldNCALoss(300, 5)
    x, y = batch()
    assert torch.equal(loss(x, y.to(dtype)), loss(x, y))


def test_unsigned_labels_out_of_range(loss: nn.Module) -> None:
    x, y = batch()
    y[0] = -(2**63) + 1
    y = y.view(torch.uint64)  # 2**63 + 1
    with pytest.raises(ValueError, match="labels must be"):
        loss(x, y)


@pytest.mark.parametrize(
    "labels",
    [[0] * 9, np.zeros(9, dtype=int), torch.zeros(9, dtype=torch.bool), torch.zeros(9)],
    ids=["list", "numpy", "bool", "float"],
)
def test_refuses_labels_that_are_no_integer_tensor(loss: nn.Module, labels: object) -> None:
    with pytest.raises(ValueError, match="labels must be"):
        loss(batch()[0], labels)


def test_refuses_embeddings_that_are_no_tensor(loss: nn.Module) -> None:
    x, y = batch()
    with pytest.raises(ValueError, match="embeddings must be a tensor, got ndarray"):
        loss(x.numpy(), y)


@pytest.mark.parametrize("number", [np.int64(3), np.int32(3), np.uint8(3)], ids=repr)
def test_numpy_integers_are_sizes(number: int) -> None:
    loss = PotentialFieldLoss(number, number, number)
    assert loss.proxies.shape == (9, 3)
    assert CentersRegularizer(number).centers_per_class == 3


@pytest.mark.parametrize("number", [-1, 1.0, True, "2", None, np.float64(2)], ids=repr)
def test_refused_sizes_are_answered_with_the_true_range(number: object) -> None:
    with pytest.raises(ValueError, match="proxies_per_class must be an integer of at least 0"):
        PotentialFieldLoss(3, 4, number)
    with pytest.raises(ValueError, match="num_classes must be an integer of at least 1"):
        PotentialFieldLoss(number, 4, 2)


@pytest.mark.parametrize("number", ["0.5", None], ids=repr)
def test_refuses_hyperparameters_that_are_no_number(number: object) -> None:
    with pytest.raises(ValueError, match="alpha must be a finite number"):
        MeanFieldNCALoss(3, 4, number)
