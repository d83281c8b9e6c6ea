"""Losses on the pretended device: numbers of the CPU, one wait per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.losses.all_losses import LOSSES, PAIR_LOSSES, batch, value_and_gradients
from tests.pretended_cuda.waits import count_waits, listed

CEILINGS = {"pfml": 2, "cpml": 2}
# Images of one class and of another, by position in the batch of `all_losses`.

Arguments = Callable[[Tensor, Tensor], dict[str, Any]]


def check(loss: nn.Module, arguments: Arguments, ceiling: int) -> None:
    """Value and gradients are those of the CPU, and the host waits at most `ceiling` times."""
    x, y = batch()

    def call(x: Tensor, y: Tensor) -> Tensor:
        return loss(x, y, **arguments(x, y))

    expected = value_and_gradients(call, loss, x, y)
    loss.cuda()
    x, y = x.cuda(), y.cuda()
    arguments(x, y)  # may copy something to the device
    with count_waits() as waits:
        found = value_and_gradients(call, loss, x, y)
    assert all(part.is_cuda for part in found)
    torch.testing.assert_close([part.cpu() for part in found], expected, rtol=1e-5, atol=1e-6)
    assert waits.total() <= ceiling, listed(waits)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_waits_once(name: str) -> None:
    check(LOSSES[name](), lambda x, y: {}, CEILINGS.get(name, 1))


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_references_are_checked_in_the_same_wait(name: str) -> None:
    def references(x: Tensor, y: Tensor) -> dict[str, Any]:
        own = torch.arange(len(x), device=x.device)
        twice = {"ref_emb": x.detach().repeat(2, 1).flip(0), "ref_labels": y.repeat(2).flip(0)}
        return {**twice, "self_index": 2 * len(x) - 1 - own}

    check(LOSSES[name](), references, 1)
