import warnings

import pytest
import torch
from torch import nn

from dml.models.bn_inception import BNInception

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    reference_module = pytest.importorskip("pretrainedmodels.models.bninception")


@pytest.fixture(scope="module")
def reference():
    """The network everyone uses, with random weights and the statistics that go with them."""
    torch.manual_seed(0)
    network = reference_module.BNInception()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # statistics become those of the one batch
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.5, 0.5)
    with torch.no_grad():
        network.features(torch.randn(4, 3, 64, 64))
    return network


def _published(reference):
    return {name: value.clone() for name, value in reference.state_dict().items()}


def _load(tmp_path, state):
    torch.save(state, tmp_path / "weights.pth")
    return BNInception(weights=str(tmp_path / "weights.pth"))


@pytest.mark.parametrize(("size", "training"), [(32, False), (227, False), (64, True)])
def test_same_maps_as_the_published_network(reference, tmp_path, size, training):
    own = _load(tmp_path, _published(reference)).train(training)
    theirs = reference_module.BNInception().train(training)
    theirs.load_state_dict(reference.state_dict())
    images = torch.randn(2, 3, size, size)
    with torch.no_grad():
        expected, result = theirs.features(images), own(images)
    assert expected.shape[:2] == (2, 1024)
    assert expected.std() > 0.1  # no network whose signal has died away
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_a_caffe_file_with_a_leading_axis_and_without_counters_loads_strictly(reference, tmp_path):
    state = _published(reference)
    old = {
        name: value[None] if "_bn." in name else value
        for name, value in state.items()
        if "num_batches_tracked" not in name
    }
    assert old["conv1_7x7_s2_bn.running_var"].shape == (1, 64)
    result = _load(tmp_path, old).state_dict()
    compared = [name for name in result if "num_batches_tracked" not in name]
    assert len(compared) == len(old) - 2  # all but the classifier's two
    for name in compared:
        torch.testing.assert_close(result[name], state[name], rtol=0, atol=0)
