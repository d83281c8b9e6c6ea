"""Gradients by DistributedDataParallel, in one process; `test_process_group.py` has two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from dml.training.data_parallel import DataParallelLoss
from dml.training.process_group import SINGLE_PROCESS
from tests.training.distributed_steps import Unused


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Squares(nn.Module):
    """A method with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(
        self, embedder: Any, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return self.scale * embedder(images).square().mean(), {}


BATCH = torch.ones(4, 3), torch.zeros(4)


def make(method: nn.Module) -> tuple[nn.Module, DataParallelLoss]:
    embedder = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    return embedder, DataParallelLoss(embedder, method, SINGLE_PROCESS)


def step(loss: DataParallelLoss) -> nn.Module | None:
    """A step; returns the module that the next one would use."""
    loss.module.zero_grad()
    loss.backward(loss(*BATCH)[0])
    return loss._wrapped


def test_parameters_without_a_gradient_are_left_out_from_then_on():
    method = Unused(Squares())
    _, loss = make(method)
    assert step(loss) is None  # `never` has none: wrapped anew
    assert step(loss) is None  # `sometimes`
    wrapped = step(loss)
    assert wrapped is not None
    assert method.sometimes.grad is not None
    assert step(loss) is wrapped
    assert method.sometimes.grad is method.never.grad is None
    assert method.sometimes.requires_grad
    assert method.never.requires_grad
