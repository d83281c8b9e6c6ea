"""BatchNorm's counters: the values of torch, in one operation for a whole network."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dml.models.backbones import TimmBackbone
from dml.models.batch_norm_counters import counting_at_once, find_counting_layers
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN


class Own(nn.BatchNorm2d):
    """A layer that insists on its counter."""

    def forward(self, x):
        self.num_batches_tracked += 1
        return super().forward(x)


class Additions(TorchDispatchMode):
    """Counts additions to single integers."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.add_.Tensor and args[0].dtype == torch.long
        return func(*args, **(kwargs or {}))


@pytest.fixture
def images():
    torch.manual_seed(0)
    return torch.randn(4, 3, 32, 32)


def trained(embedder, images, steps=3):
    for _ in range(steps):
        embedder.train()
        embedder(images).sum().backward()
    return embedder.state_dict()


@pytest.mark.parametrize(
    "backbone",
    [SmallCNN, lambda: TimmBackbone("efficientnet_lite0", "none", 32)],
    ids=["torch's layers", "timm's layers"],
)
def test_the_state_is_that_of_a_plain_network(backbone, images):
    embedder = Embedder(backbone(), 4)
    plain = copy.deepcopy(embedder)
    with Additions() as additions:
        found = trained(pickle.loads(pickle.dumps(embedder)), images)
    assert additions.count == 0
    for _ in range(3):
        plain.backbone(images)
    expected = plain.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    plain.load_state_dict(found)
    embedder.load_state_dict(expected)


def test_a_compiled_backbone_counts_too(images):
    torch.manual_seed(1)
    embedder = Embedder(SmallCNN(width=2), 4)
    expected = trained(copy.deepcopy(embedder), images)
    embedder.backbone.compile(backend="eager", fullgraph=True)
    found = trained(embedder, images)
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_layers_that_read_their_counter_keep_it(images):
    network = nn.Sequential(
        nn.BatchNorm2d(3, momentum=None), nn.BatchNorm2d(3), Own(3), nn.BatchNorm2d(3).eval()
    )
    plain = copy.deepcopy(network)
    for batch in images.split(1):
        with counting_at_once(find_counting_layers(network)):
            network(batch)
        plain(batch)
    for name, value in plain.state_dict().items():
        assert torch.equal(network.state_dict()[name], value), name
    assert network[0].num_batches_tracked == network[1].num_batches_tracked == 4
    assert network[2].num_batches_tracked == 8
    assert network[3].num_batches_tracked == 0


def test_frozen_layers_and_evaluation_do_not_count(images):
    frozen = Embedder(SmallCNN(), 4, freeze_batch_norm=True)
    evaluated = Embedder(SmallCNN(), 4).train().eval()
    trained(frozen, images)
    evaluated(images)
    for embedder in (frozen, evaluated):
        assert embedder.backbone.stem[1].num_batches_tracked == 0


def test_a_failed_pass_leaves_the_counters_in_place(images):
    embedder = Embedder(SmallCNN(), 4).train()
    with pytest.raises(RuntimeError):
        embedder(images[:, :2])
    assert embedder.backbone.stem[1].num_batches_tracked == 0
    trained(embedder, images, steps=1)
    assert embedder.backbone.stem[1].num_batches_tracked == 1
