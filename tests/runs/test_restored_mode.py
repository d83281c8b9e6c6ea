"""What looks at a network leaves it in its mode, with its statistics."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from dml.data.image_index import ImageIndex
from dml.data.loaders import LoaderOptions
from dml.data.protocol import Split
from dml.data.transforms import ToInput
from dml.methods.chance_constrained.k_center import embed_pool
from dml.models.backbones import check_training_mode, complete
from dml.runs.embeddings import Evaluator


class WithBatchNorm(nn.Module):
    """Embeds images by a layer that is changed by what it sees in training mode."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))

    def forward(self, images):
        return self.body(images).mean((2, 3))

    def unnormalized(self, images):
        return self(images)


def embed_a_split(network):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)
    index = ImageIndex("x", pixels, np.arange(6) % 3, np.array(["test"] * 6))
    options = LoaderOptions(ToInput((0,) * 3, (1,) * 3), torch.device("cpu"))
    Evaluator(Split(index.subset("test")), nn.Identity(), options, batch_size=4).embed(network)


def embed_the_pool(network):
    embed_pool(network, [(torch.rand(6, 3, 8, 8), torch.arange(6))], 6)


USES = {
    "embed": embed_a_split,
    "pool": embed_the_pool,
    "complete": partial(complete, size=8),
    "check": lambda network: check_training_mode(complete(network, 8), 8),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("use", USES)
def test_the_mode_and_the_statistics_of_a_network_stay(use, training):
    network = WithBatchNorm().train(training)
    before = copy.deepcopy(network.state_dict())
    USES[use](network)
    assert {layer.training for layer in network.modules()} == {training}
    after = network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
