"""TF32 is allowed in the products of the backbone, forwards and backwards, and nowhere else."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dml.models.backbones import Backbone, InputSpec
from dml.models.embedder import Embedder


class Product(Backbone):
    """Two products."""

    kind, channels, input = "vectors", 7, InputSpec(size=2)

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 7, bias=False)
        self.second = nn.Linear(7, 7, bias=False)

    def forward(self, images):
        if images.isnan().any():
            raise ValueError("NaN")
        return self.second(self.first(images.flatten(1)))


class Products(TorchDispatchMode):
    """Whether TF32 was allowed, by product, in order."""

    def __init__(self):
        super().__init__()
        self.allowed = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.allowed.append(torch.backends.cuda.matmul.allow_tf32)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def embedder():
    torch.manual_seed(0)
    network = Embedder(Product(), 3)
    network.tf32_products = True
    return network


def loss_of(embedder, images):
    embeddings = embedder(images)
    return (embeddings @ embeddings.T).square().sum()


def test_the_backbone_alone_is_rounded(embedder):
    images = torch.randn(4, 3, 2, 2)
    expected = copy.deepcopy(embedder)
    expected.tf32_products = False
    loss_of(expected, images).backward()
    for _ in range(2):
        embedder.zero_grad()
        with Products() as forwards:
            loss = loss_of(embedder, images)
        with Products() as backwards:
            loss.backward()
        assert forwards.allowed == [True, True, False, False]  # backbone, head, loss
        # Twice for the loss, for the head, for the second layer; the images need no gradient.
        assert backwards.allowed == [False] * 4 + [True] * 3
        assert not torch.backends.cuda.matmul.allow_tf32
    for one, other in zip(embedder.parameters(), expected.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


def test_nothing_is_rounded_without_it_or_after_an_error(embedder):
    images = torch.randn(4, 3, 2, 2)
    with pytest.raises(ValueError, match="NaN"):
        embedder(images * torch.nan)
    embedder.tf32_products = False
    with Products() as products, torch.no_grad():
        loss_of(embedder, images)
    assert not any(products.allowed)
