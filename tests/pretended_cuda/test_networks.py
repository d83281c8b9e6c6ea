"""Training steps of real networks on the pretended device: the CPU's numbers, and few waits."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import pytest
import torch
from torch import Tensor

from dml.losses.generic import ContrastiveLoss
from dml.methods.plain import Plain
from dml.models.backbones import Backbone, TimmBackbone
from dml.models.bn_inception import BNInception
from dml.models.embedder import Embedder
from dml.training.interfaces import TrainConfig
from dml.training.optim import GroupOptions, build_optimizer, parameter_groups
from dml.training.step import TrainingStep
from dml.training.train_state import TrainState
from tests.pretended_cuda.waits import count_waits, listed

STEPS = 2
LABELS = torch.arange(3).repeat_interleave(2)


@cache  # random weights take longer than a step
def built(name: str) -> tuple[Embedder, Tensor]:
    """The network and the images of all steps."""
    torch.manual_seed(0)
    if name == "bn_inception":
        backbone: Backbone = BNInception(weights="none", input_size=32)
    else:
        backbone = TimmBackbone(name, weights="none", input_size=32)
    return Embedder(backbone, 16), torch.randn(STEPS, len(LABELS), 3, 32, 32)


def trained(name: str, device: str) -> dict[str, Tensor]:
    """Losses of all steps, gradients of the last one, and the weights after it."""
    embedder, images = built(name)
    embedder = deepcopy(embedder).to(device)
    method = Plain(ContrastiveLoss()).to(device)
    groups = parameter_groups(embedder, method, GroupOptions(lr=1e-2))
    state = TrainState(embedder, method, build_optimizer(torch.optim.SGD, groups, {}))
    step = TrainingStep(state, TrainConfig(1, 1, 1))
    found = {}
    for number in range(STEPS):
        batch = images[number].to(device), LABELS.to(device)
        with count_waits() as waits:
            found[f"loss {number}"] = step(*batch, warming_up=False)["loss"]
        assert waits.total() <= 1, listed(waits)
    found |= {f"gradient of {k}": p.grad for k, p in embedder.named_parameters()}
    return found | embedder.state_dict()


@pytest.mark.parametrize("name", ["bn_inception", "resnet50", "vit_small_patch16_224"])
def test_a_step_is_that_of_the_cpu_and_waits_once(name):
    expected, found = trained(name, "cpu"), trained(name, "cuda")
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key].cpu(), value, rtol=1e-4, atol=1e-6, msg=key)
