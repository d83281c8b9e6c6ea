"""Gradients by DistributedDataParallel, in one process; `test_process_group.py` has two."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dml.training.collectives import ConnectionLost
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


class FailsBackward(torch.autograd.Function):
    """A loss whose backward pass fails."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, message: str) -> Tensor:
        ctx.message = message
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise RuntimeError(ctx.message)


BATCH = torch.ones(4, 3), torch.zeros(4)


def make(method: nn.Module) -> tuple[nn.Module, DataParallelLoss]:
    embedder = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    return embedder, DataParallelLoss(embedder, method, SINGLE_PROCESS)


def step(loss: DataParallelLoss) -> nn.Module | None:
    """A step; returns the module that the next one would use."""
    loss.module.zero_grad()
    loss.backward(loss(*BATCH)[0])
    return loss._wrapped


def test_it_is_wrapped_anew_where_warm_up_begins_or_ends_and_the_old_one_is_freed():
    embedder, loss = make(Squares())
    before = step(loss)
    assert isinstance(before, DistributedDataParallel)
    assert step(loss) is before
    old = weakref.ref(before)
    del before
    embedder[0].requires_grad_(False)
    frozen = step(loss)
    assert old() is None
    assert embedder[0].weight.grad is None
    assert step(loss) is frozen
    embedder[0].requires_grad_(True)
    assert step(loss) is not frozen
    assert embedder[0].weight.grad is not None


def test_names_in_checkpoints_stay():
    method = Squares()
    embedder, loss = make(method)
    names = set(embedder.state_dict()), set(method.state_dict())
    step(loss)
    assert (set(embedder.state_dict()), set(method.state_dict())) == names
    assert names[1] == {"scale"}


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


def test_a_loss_without_trainable_parameters_is_not_wrapped():
    _, loss = make(Squares())
    loss.module.requires_grad_(False)
    loss(*BATCH)
    assert loss._wrapped is loss.module


@pytest.mark.parametrize(
    ("message", "error", "told"),
    [
        ("[/gloo/pair.cc:5] Connection closed by peer [::1]:9", ConnectionLost, "lost contact"),
        ("a mistake in a loss", RuntimeError, "a mistake in a loss"),
    ],
)
def test_only_lost_connections_are_told_as_such(message, error, told):
    _, loss = make(Squares())
    value, _ = loss(*BATCH)
    with pytest.raises(error, match=told):
        loss.backward(FailsBackward.apply(value, message))
