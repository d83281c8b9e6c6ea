"""Stored features are standardized by the training features, with and without their network."""

import pytest
import torch

from dml.models.embedder import Embedder
from dml.models.identity import FeatureNetwork, Identity
from dml.models.small_cnn import SmallCNN


@pytest.fixture
def training():
    torch.manual_seed(0)
    return torch.tensor([5.0, -3.0, 0.01]) + torch.tensor([2.0, 0.3, 1e-3]) * torch.randn(101, 3)


def test_training_features_have_mean_0_and_deviation_1(training):
    backbone = Identity(3)
    backbone.fit(training)
    standardized = backbone(training).double()
    torch.testing.assert_close(standardized.mean(dim=0), torch.zeros(3).double(), atol=1e-4, rtol=0)
    deviation = standardized.std(dim=0, correction=0)
    torch.testing.assert_close(deviation, torch.ones(3).double(), atol=1e-4, rtol=0)


def test_other_features_are_standardized_by_the_training_features(training):
    backbone, loaded = Identity(3), Identity(3)
    backbone.fit(training)
    loaded.load_state_dict(backbone.state_dict())
    other = 3 * torch.randn(7, 3)
    exact = training.double()
    expected = (other - exact.mean(dim=0)) / exact.std(dim=0, correction=0)
    torch.testing.assert_close(backbone(other).double(), expected, atol=0, rtol=1e-4)
    assert torch.equal(loaded(other), backbone(other))


def test_a_constant_channel_is_0():
    backbone = Identity(2)
    backbone.fit(torch.tensor([[4.0, 1.0], [4.0, 3.0]]))
    assert backbone(torch.tensor([[4.0, 2.0]])).tolist() == [[0.0, 0.0]]


def test_features_may_stay_as_they_are(training):
    backbone = Identity(3, standardize=False)
    backbone.fit(training)
    assert torch.equal(backbone(training), training)


def test_features_of_images_are_those_before_the_head(training):
    network = Embedder(SmallCNN(width=2), 3, pooling="avg+max").eval()
    images = torch.rand(5, 3, 8, 8)
    pooled = network.pool(network.features(images))
    standardize = Identity(8)
    standardize.fit(pooled)
    with_network = FeatureNetwork(network, standardize)
    torch.testing.assert_close(with_network(images), standardize(pooled))
    assert (with_network.channels, with_network.input) == (8, network.input)


@pytest.mark.parametrize("value", [0.0, 4.0, -1e6, 1e-9])
def test_a_channel_that_only_other_images_vary_keeps_its_scale(value):
    """It may be 0 for all training images, and vary for classes that they do not have."""
    training = torch.tensor([[value, 1.0, 0.0], [value, 3.0, 1e-4]])
    backbone = Identity(3)
    backbone.fit(training)
    other = torch.tensor([[value + 0.5, 2.0, 0.0]])
    assert backbone(other)[0].tolist() == pytest.approx([0.5, 0.0, -1.0])


def test_features_without_any_difference_are_0():
    backbone = Identity(2)
    backbone.fit(torch.zeros(3, 2))
    assert backbone(torch.zeros(1, 2)).tolist() == [[0.0, 0.0]]
