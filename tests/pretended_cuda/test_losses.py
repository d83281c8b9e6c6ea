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
TRIPLETS = tuple(torch.tensor(part) for part in ([0, 1, 2, 3], [7, 6, 5, 4], [1, 2, 3, 8]))

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


@pytest.mark.filterwarnings("ignore:.*ignores indices_tuple")
@pytest.mark.parametrize("name", LOSSES)
def test_the_tuple_of_a_miner_is_checked_in_the_same_wait(name: str) -> None:
    placed: dict[torch.device, tuple[Tensor, ...]] = {}

    def mined(x: Tensor, y: Tensor) -> dict[str, Any]:
        if x.device not in placed:
            placed[x.device] = tuple(part.to(x.device) for part in TRIPLETS)
        return {"indices_tuple": placed[x.device]}

    check(LOSSES[name](), mined, CEILINGS.get(name, 1))


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_what_is_wrong_is_named(name: str) -> None:
    loss = LOSSES[name]()
    x, y = (part.cuda() for part in batch())
    nobody = torch.full_like(y, -1)
    for message, arguments in {
        "embeddings must be finite": (x * torch.nan, y),
        "labels must be at least 0, got -1..4": (x, y - 1),
        "ref_emb must be finite": (x, y, None, x / 0, y),
        "ref_labels must be at least 0, got -1..4": (x, y, None, x, y - 1),
        "indices_tuple must hold positions": (x, y, [nobody, y, y], x, y, nobody),
    }.items():
        with pytest.raises(ValueError, match=message):
            loss(*arguments)
