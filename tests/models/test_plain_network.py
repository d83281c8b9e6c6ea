import pytest
import torch
from torch import nn

from dml.models.embedder import Embedder
from dml.models.plain_network import complete


class Net(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.layer = nn.Conv2d(3, 6, 4, stride=4)
        self.change = change

    def forward(self, images):
        return self.change(self.layer(images))


OUTPUTS = {
    "maps": lambda maps: maps,
    "tokens": lambda maps: maps.flatten(2).transpose(1, 2),
    "vectors": lambda maps: maps.mean(dim=(2, 3)),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_kind_and_channels_are_found_and_features_pooled(kind):
    network = complete(Net(OUTPUTS[kind]), 16)
    assert (network.kind, network.channels, network.training) == (kind, 6, True)
    assert network.input.size == 224
    images = torch.rand(2, 3, 16, 16)
    for pooling in ("avg", "avg+max", "native"):
        if pooling == "native" and kind != "vectors":
            continue
        embedder = Embedder(network, 4, pooling=pooling, token_pooling="mean")
        assert embedder(images).shape == (2, 4)
