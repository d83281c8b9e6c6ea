"""All losses in the wrappers of pytorch-metric-learning.

Values are compared with a direct call, or there is a refusal in one sentence.
"""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.utils import distributed
from torch import Tensor

from dml.losses.pml_adapter import PMLAdapter
from tests.losses.all_losses import LOSSES, PAIR_LOSSES, PROXY_LOSSES, batch


class AnyCrossBatchMemory(pml.CrossBatchMemory):
    @classmethod
    def check_loss_support(cls, loss_name: str) -> None:
        """Accepts every loss."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=LOSSES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def memory_steps() -> list[tuple[Tensor, Tensor]]:
    """Batches of 9 that wrap around a memory of 20."""
    return [batch() for _ in range(3)]


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_cross_batch_memory(name: str) -> None:
    loss = LOSSES[name]()
    if hasattr(loss, "include_self"):
        loss.include_self = False  # the wrapper lists no embedding with itself
    wrapper = AnyCrossBatchMemory(loss, embedding_size=5, memory_size=20)
    memory, labels = torch.zeros(20, 5), torch.zeros(20, dtype=torch.long)
    for step, (x, y) in enumerate(memory_steps()):
        rows = torch.arange(9 * step, 9 * step + 9) % 20
        memory[rows], labels[rows] = x, y
        size = min(20, 9 * step + 9)
        references = {"ref_emb": memory[:size], "ref_labels": labels[:size]}
        torch.testing.assert_close(wrapper(x, y), loss(x, y, **references, self_index=rows))


@pytest.mark.parametrize("name", PROXY_LOSSES)
def test_losses_with_proxies_refuse_references(name: str) -> None:
    loss = LOSSES[name]()
    x, y = batch()
    message = f"^ref_emb must be None: {type(loss).__name__} cannot use it$"
    with pytest.raises(ValueError, match=message):
        AnyCrossBatchMemory(loss, 5, 20)(x, y)


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """Two processes of which the other one has this batch."""
    x, y = batch()
    monkeypatch.setattr(distributed, "is_distributed", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "all_gather", lambda mine: x if mine.ndim == 2 else y)
    return x, y


def test_distributed_loss_wrapper(name: str, two_processes: tuple[Tensor, Tensor]) -> None:
    x, y = batch()
    loss = LOSSES[name]()
    with pytest.raises(TypeError, match="must extend BaseMetricLossFunction"):
        distributed.DistributedLossWrapper(loss)
    both = [torch.cat(parts) for parts in zip((x, y), two_processes, strict=True)]
    whole = distributed.DistributedLossWrapper(PMLAdapter(loss))
    torch.testing.assert_close(whole(x, y), 2 * loss(*both))
    efficient = distributed.DistributedLossWrapper(PMLAdapter(loss), efficient=True)
    if name in PROXY_LOSSES:
        with pytest.raises(ValueError, match="ref_emb must be None"):
            efficient(x, y)
        return
    if hasattr(loss, "include_self"):
        loss.include_self = False
    references = dict(zip(("ref_emb", "ref_labels"), both, strict=True))
    expected = loss(x, y, **references, self_index=torch.arange(9))
    torch.testing.assert_close(efficient(x, y), 2 * expected)
