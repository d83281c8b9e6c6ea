"""The pretended device refuses what a GPU refuses, counts what waits, and leaves no trace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.pretended_cuda.waits import count_waits


@pytest.fixture
def x() -> Tensor:
    return torch.arange(6.0, device="cuda").view(2, 3)


def test_a_tensor_and_all_that_comes_of_it_are_on_the_device(x):
    layer = nn.Linear(3, 2).to("cuda")
    y = layer(x)
    y.sum().backward()
    for one in (x, x.T, x + 1, x.double(), x.new_zeros(2), y, layer.weight, layer.weight.grad):
        assert one.is_cuda
        assert one.device == torch.device("cuda", 0)
    assert isinstance(layer.weight, nn.Parameter)
    assert x.cpu().device == torch.zeros(1).device == torch.device("cpu")


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x @ torch.ones(3),
        lambda x: torch.cat([x, torch.ones(1, 3)]),
        lambda x: torch.ones(2, 3).add_(x),
        lambda x: torch.ones(3)[torch.zeros(1, dtype=torch.long, device="cuda")],
        lambda x: nn.Linear(3, 2)(x),
    ],
)
def test_two_devices_in_one_operation_are_refused(x, mix):
    with pytest.raises(RuntimeError, match="on the same device"):
        mix(x)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (lambda x: x.sum() * 2 + 1, 0),
        (lambda x: x.masked_fill_(x > 2, 0), 0),
        (lambda x: torch.ones(3).to("cuda", non_blocking=True), 0),
        (lambda x: x.sum().item(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: x[x > 2], 1),
        (lambda x: x.unique(), 1),
        (lambda x: torch.bincount(x.long().flatten()), 2),
        (lambda x: torch.ones(3).to("cuda"), 1),
        (lambda x: torch.cuda.synchronize(), 1),
    ],
)
def test_what_waits_is_counted_by_its_line(x, operation: Callable[[Tensor], object], expected: int):
    with count_waits() as waits:
        operation(x)
    assert waits.total() == expected
    assert all(__file__ in wait.where for wait in waits)
