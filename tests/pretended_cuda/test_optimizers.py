"""Optimizers on the pretended device: fused where they can be, also in a run that moves there."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn

from dml.training.optim import build_optimizer
from dml.training.train_state import TrainState

OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]


class OwnAdagrad(torch.optim.Adagrad):
    """One that is derived from torch's."""


def state_on(device: str, optimizer: Any, **args: Any) -> TrainState:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2).to(device)
    built = build_optimizer(optimizer, [{"params": [*layer.parameters()], "lr": 0.1}], args)
    return TrainState(layer, nn.Identity(), built)


def take_step(state: TrainState) -> None:
    state.embedder(torch.ones(1, 3).to(state.device)).square().sum().backward()
    state.optimizer.step()
    state.optimizer.zero_grad()


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, OwnAdagrad])
def test_a_step_is_fused_and_that_of_the_cpu(optimizer):
    cuda, cpu = state_on("cuda", optimizer), state_on("cpu", optimizer)
    for state in (cuda, cpu):
        take_step(state)
    assert cuda.optimizer.param_groups[0]["fused"]
    assert not cpu.optimizer.param_groups[0]["fused"]
    for one, other in zip(cuda.embedder.parameters(), cpu.embedder.parameters(), strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach())


@pytest.mark.parametrize("optimizer", [torch.optim.Adagrad, OwnAdagrad])
def test_an_optimizer_without_a_fused_kernel_for_gpus_is_not_fused(optimizer, monkeypatch):
    """As Adagrad of torch 2.11, which has such a kernel for CPUs only."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    monkeypatch.setattr(
        torch._C,
        "_dispatch_has_kernel_for_dispatch_key",
        lambda name, key: "adagrad" not in name and has_kernel(name, key),
    )
    state = state_on("cuda", optimizer)
    take_step(state)
    assert not state.optimizer.param_groups[0]["fused"]


@pytest.mark.parametrize("choice", ["foreach", "differentiable"])
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, torch.optim.RMSprop])
def test_other_kernels_can_be_chosen(optimizer, choice):
    state = state_on("cuda", optimizer, **{choice: True})
    group = state.optimizer.param_groups[0]
    assert group[choice]
    assert not group.get("fused")
    if choice == "foreach":
        take_step(state)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("before", ["cpu", "cuda"])
@pytest.mark.parametrize("after", ["cpu", "cuda"])
def test_a_run_goes_on_with_the_kernels_of_its_device(optimizer, before, after):
    stored, undisturbed, moved = (state_on(d, optimizer) for d in (before, "cpu", after))
    for state in (stored, undisturbed):
        take_step(state)
    file = io.BytesIO()
    torch.save(stored.state_dict(), file)
    file.seek(0)
    moved.load_state_dict(torch.load(file, weights_only=True))
    assert bool(moved.optimizer.param_groups[0]["fused"]) == (after == "cuda")
    for state in (moved, undisturbed):
        take_step(state)
    for one, other in zip(
        moved.embedder.parameters(), undisturbed.embedder.parameters(), strict=True
    ):
        torch.testing.assert_close(one.detach().cpu(), other.detach())
