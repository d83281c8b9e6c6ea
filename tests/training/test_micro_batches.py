"""A step in parts is the step of the whole batch, and needs the tensors of one part only."""

import random
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dml.core.errors import UserError
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.training.micro_batches import in_micro_batches
from dml.training.process_group import SINGLE_PROCESS
from tests.methods.tiny_training import ccp_steps
from tests.training.distributed_steps import CASES, relative, trained

OTHERS = {"bf16", "micro-batches"} | {"imix", "metrix input", "metrix feature", "metrix of all"}
TOLERANCE = 1e-10  # the worst seen is 5e-14


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("case", [case for case in CASES if case not in OTHERS])
def test_every_loss_and_method(float64, case):
    whole, parts = trained(case, SINGLE_PROCESS), trained(case, SINGLE_PROCESS, micro_batch=5)
    assert whole.keys() == parts.keys()
    assert max(relative(parts[name], whole[name]) for name in whole) <= TOLERANCE


def test_ccp(float64):
    whole, parts = ([step() for step in ccp_steps("cpu", 9, size)] for size in (None, 7))
    assert torch.stack(parts).allclose(torch.stack(whole), rtol=TOLERANCE, atol=0)


def in_parts_with_all_tensors(embedder, size):
    return lambda images: torch.cat([embedder(part) for part in images.split(size)])


@pytest.mark.parametrize("bf16", [False, True])
def test_dropout_running_statistics_and_the_size_of_parts(bf16):
    found = []
    for wrap in (in_parts_with_all_tensors, in_micro_batches):
        torch.manual_seed(0)
        embedder, sizes = Embedder(SmallCNN(width=2), 5), []
        embedder.backbone.layers.append(nn.Dropout(0.5))
        embedder.backbone.register_forward_hook(lambda *call, s=sizes: s.append(len(call[2])))
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            embeddings = wrap(embedder, 4)(torch.randn(12, 3, 16, 16))
        (embeddings * torch.randn(12, 5)).sum().backward()
        tensors = [p.grad for p in embedder.parameters()] + [*embedder.buffers(), torch.rand(3)]
        found.append([embeddings, *tensors])
    assert sizes == [4] * 6  # forward, and again in the backward pass
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("images", [1, 3, 4, 5, 7, 8, 11])
def test_no_part_is_larger_than_asked(images):
    sizes = []
    embedder = Embedder(SmallCNN(width=2), 5)
    embedder.backbone.register_forward_hook(lambda *call: sizes.append(len(call[2])))
    in_micro_batches(embedder, 4)(torch.randn(images, 3, 16, 16)).sum().backward()
    assert max(sizes) <= 4
    assert sum(sizes) == (images if images <= 4 else 2 * images)  # two passes of several parts


def draw_by_torch(features):
    return features + torch.randn(1)


def draw_by_numpy(features):
    return features + np.random.randn()


def draw_by_random(features):
    return features + random.random()


def draw_mask_by_numpy(features):
    return features * torch.from_numpy(np.random.rand(features.shape[1]) < 0.5)


def count_calls():
    calls = []

    def add_number(features):
        calls.append(len(features))
        return features + len(calls)

    return add_number


class Changed(nn.Module):
    """A backbone whose features a function changes."""

    def __init__(self, change):
        super().__init__()
        self.layer, self.change = nn.Linear(3, 8), change

    def forward(self, images):
        return self.change(self.layer(images.mean((2, 3))))


def train_step(network):
    called = in_micro_batches(network, 4)
    called(torch.rand(8, 3, 4, 4)).square().sum().backward()
    return called


OTHER_DRAWS = [draw_by_numpy, draw_by_random, draw_mask_by_numpy, count_calls()]


@pytest.mark.parametrize("scale", [1e-4, 1.0])
@pytest.mark.parametrize("change", OTHER_DRAWS)
def test_a_network_that_does_not_repeat_its_pass_is_refused(change, scale):
    with pytest.raises(UserError, match="the network gives other features"):
        train_step(Changed(lambda features: scale * change(features)))


@pytest.mark.parametrize("change", [draw_by_torch, torch.relu, partial(F.dropout, p=0.9)])
def test_the_passes_of_a_network_are_compared_once(change):
    called = train_step(Changed(change))
    called.embedder.change = draw_by_numpy
    called(torch.rand(8, 3, 4, 4)).sum().backward()


def test_passes_without_gradients_are_not_repeated():
    called = in_micro_batches(Changed(draw_by_numpy), 4)
    with torch.no_grad():
        called(torch.rand(8, 3, 4, 4))
    with pytest.raises(UserError, match="draw its random numbers with torch"):
        called(torch.rand(8, 3, 4, 4)).sum().backward()
