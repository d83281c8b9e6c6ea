import dataclasses
from pathlib import Path

import pytest
import timm
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from safetensors.torch import save_file
from timm.layers import resample_abs_pos_embed
from torch import nn

from dml.core.errors import ConfigError, UserError
from dml.models import backbones
from dml.models.backbones import (
    InputSpec,
    TimmBackbone,
    check_training_mode,
    complete,
    spec_of,
)
from dml.models.embedder import Embedder

CONFIGS = Path(__file__).parents[2] / "configs" / "backbone"
OPEN = {"timm", "custom", "identity"}  # the network, or the file of features, is an option
BACKBONES = sorted({path.stem for path in CONFIGS.glob("*.yaml")} - OPEN)

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
# input, and the shape of the features
EXPECTED = {
    "bn_inception": (InputSpec(224, (104, 117, 128), (1, 1, 1), "bgr", 255), (1024, 7, 7)),
    "resnet50": (InputSpec(224, **IMAGENET), (2048, 7, 7)),
    "vit_b16": (InputSpec(224), (197, 768)),
    "vit_s16": (InputSpec(224), (197, 384)),
    "dino_s16": (InputSpec(224, **IMAGENET), (197, 384)),
    "small_cnn": (InputSpec(None), (256, 4, 4)),
}


def _build(name, **changes):
    config = OmegaConf.load(CONFIGS / f"{name}.yaml")
    for name in ("name", "train", "lora"):  # are no arguments
        config.pop(name, None)
    return instantiate(config, **{"weights": "none", **changes})


SOAK = {"vit_b16": pytest.mark.soak}  # vit_s16 is the same code


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=SOAK.get(name, ())) for name in BACKBONES]
)
def named(request):
    torch.manual_seed(0)
    return request.param, _build(request.param)


def test_input_is_that_of_the_weights(named):
    name, backbone = named
    assert dataclasses.asdict(backbone.input) == dataclasses.asdict(EXPECTED[name][0])


def test_forward_and_backward(named):
    name, backbone = named
    # Frozen statistics: a bias before batch statistics has no gradient but rounding errors.
    embedder = Embedder(backbone, None, pooling="avg+max", freeze_batch_norm=True).train()
    for layer in embedder.modules():  # timm starts residual branches at zero
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
    size = backbone.input.size or 32
    images = torch.randn(2, 3, size, size)
    features = embedder.features(images)
    assert features.shape == (2, *EXPECTED[name][1])
    embeddings = embedder.embed(features)
    assert embeddings.shape == (2, backbone.channels)
    with torch.no_grad():
        torch.testing.assert_close(embedder(images), embeddings)
    (embeddings * torch.randn_like(embeddings)).sum().backward()
    for parameter_name, parameter in embedder.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
        assert parameter.grad.any(), parameter_name


# Networks of timm's own test suite: the code of the full ones in little.
SMALL = {"maps": ("test_resnet", "fc."), "tokens": ("test_vit", "head.")}  # with the classifier


def _small(kind, **options):
    return TimmBackbone(f"{SMALL[kind][0]}.r160_in1k", input_size=64, **options)


def _release(kind):
    """What the hub holds for `_small(kind)`: 160 pixels, classifier included."""
    torch.manual_seed(5)
    return timm.create_model(SMALL[kind][0]).state_dict()


@pytest.mark.parametrize("kind", SMALL)
def test_imagenet_weights_come_without_classifier_and_fit_the_size(kind, snapshot):
    release, (name, classifier) = _release(kind), SMALL[kind]
    save_file(release, snapshot(f"timm/{name}.r160_in1k") / "model.safetensors")
    state = _small(kind, weights="imagenet").network.state_dict()
    assert set(state) == {n for n in release if not n.startswith(classifier)}
    if kind == "tokens":
        release["pos_embed"] = resample_abs_pos_embed(release["pos_embed"], [4, 4])
    for name, value in state.items():
        torch.testing.assert_close(value, release[name])


def test_a_hub_that_cannot_be_reached_is_named():
    with pytest.raises(UserError, match=r"imagenet: .*timm/test_vit\.r160_in1k .*<file>"):
        TimmBackbone("test_vit.r160_in1k")


def test_weights_of_another_network_are_refused(tmp_path):
    for kind in SMALL:
        torch.save(_release(kind), tmp_path / f"{kind}.pth")
    for kind, other in (("tokens", "maps"), ("maps", "tokens")):
        with pytest.raises(UserError, match="are they of another network") as error:
            _small(kind, weights=str(tmp_path / f"{other}.pth"))
        assert "\n" not in str(error.value)


def test_a_transformer_without_class_token_needs_mean_pooling():
    backbone = _small("tokens", weights="none")
    backbone.prefix_tokens = 0
    with pytest.raises(UserError, match=r"embedder\.token_pooling=token"):
        Embedder(backbone, None)
    Embedder(backbone, None, token_pooling="mean")


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
    evaluated = complete(Net(OUTPUTS[kind]).eval(), 16)
    assert not evaluated.training
    network = complete(Net(OUTPUTS[kind]), 16)
    spec = spec_of(network)
    assert (spec.kind, spec.channels, network.training) == (kind, 6, True)
    assert spec.input.size == 224
    images = torch.rand(2, 3, 16, 16)
    for pooling in ("avg", "avg+max", "native"):
        if pooling == "native" and kind != "vectors":
            continue
        embedder = Embedder(network, 4, pooling=pooling, token_pooling="mean")
        assert embedder(images).shape == (2, 4)


class NamedOtherwise(nn.Module):
    """Attributes of a user whose names mean something else here."""

    def __init__(self):
        super().__init__()
        self.kind, self.channels = "gelu", 2
        self.input = nn.Conv2d(3, 6, 4, stride=4)
        self.prefix_tokens = nn.Parameter(torch.ones(6))
        self.native_channels = 3

    def forward(self, images):
        assert self.kind == "gelu"
        maps = self.input(images) * self.prefix_tokens[:, None, None]
        return maps[:, : 2 * self.channels]


def test_attributes_of_a_network_stay_as_they_are():
    network = complete(NamedOtherwise(), 16)
    assert (network.kind, network.channels, network.native_channels) == ("gelu", 2, 3)
    assert isinstance(network.input, nn.Conv2d)
    assert isinstance(network.prefix_tokens, nn.Parameter)
    check_training_mode(network, 16)
    spec = spec_of(network)
    assert (spec.kind, spec.channels, spec.input) == ("maps", 4, backbones.IMAGENET)
    assert (spec.prefix_tokens, spec.native_channels) == (0, None)
    embedder = Embedder(network, 5)
    assert embedder(torch.rand(2, 3, 16, 16)).shape == (2, 5)
    assert embedder.input == backbones.IMAGENET
    with pytest.raises(UserError, match="the backbone has no pooling"):
        Embedder(network, 5, pooling="native")


def test_what_a_network_says_of_its_input_is_used():
    network = Net(OUTPUTS["tokens"])
    network.input = InputSpec(size=16, mean=(0.1, 0.2, 0.3))
    network.prefix_tokens = 1
    network.native_channels = 6
    network.pool_natively = lambda tokens: tokens[:, 1]
    spec = spec_of(complete(network))
    assert (spec.input, spec.prefix_tokens, spec.native_channels) == (network.input, 1, 6)
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(Embedder(network, None).pool(network(images)), network(images)[:, 0])
    native = Embedder(network, 4, pooling="native")
    assert torch.equal(native.pool(network(images)), network(images)[:, 1])


class OwnNetwork(nn.Module):
    """A network of a user, whose output `change` replaces."""

    def __init__(self, change=None, in_training=False):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.change, self.in_training = change, in_training

    def forward(self, images):
        features = self.norm(self.convolution(images)).mean((2, 3))
        changes = self.change is not None and (self.training or not self.in_training)
        return self.change(features) if changes else features


CHANGES = {
    "a tuple": lambda x: (x, x),
    "a dict": lambda x: {"features": x},
    "a ndarray": lambda x: x.detach().numpy(),
    "torch.float16": lambda x: x.half(),
    "torch.complex64": lambda x: torch.complex(x, x),
    "torch.int64": lambda x: x.long(),
}


@pytest.mark.parametrize("in_training", [False, True])
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("declares", [False, True])
def test_the_output_of_own_networks_is_checked_in_both_modes(kind, in_training, declares):
    network = OwnNetwork(CHANGES[kind], in_training)
    if declares:
        network.channels, network.kind = 4, "vectors"
    with pytest.raises(ConfigError) as caught:
        check_training_mode(complete(network, 8), 8)
    (line,) = caught.value.problems
    assert line.startswith("backbone: OwnNetwork fails on")
    assert f"it returns {kind}, not" in line
    assert "size" not in line  # no other size of the images would help


def test_another_width_in_training_is_named():
    with pytest.raises(ConfigError, match=r"training mode: it returns \[2, 3\], but \[2, 4\] else"):
        check_training_mode(complete(OwnNetwork(lambda x: x[:, :3], in_training=True), 8), 8)


def test_a_check_in_training_mode_changes_nothing():
    network = OwnNetwork()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    check_training_mode(complete(network, 8), 8)
    assert network.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("change", [torch.Tensor.detach, torch.no_grad()(lambda x: 2 * x)])
def test_features_without_a_gradient_are_refused_unless_the_head_alone_is_trained(change):
    network = complete(OwnNetwork(change), 8)
    with pytest.raises(ConfigError, match="its features have no gradient"):
        check_training_mode(network, 8)
    check_training_mode(network, 8, trained=False)
    check_training_mode(network.requires_grad_(False), 8)


def test_a_network_of_timm_is_tried_on_images_of_another_size():
    convolutions = TimmBackbone("test_resnet", weights="none", input_size=32)
    assert complete(convolutions, 64) is convolutions
    options = {"weights": "none", "input_size": 32, "args": {"depth": 1}}
    transformer = TimmBackbone("vit_tiny_patch16_224", **options)
    with pytest.raises(ConfigError, match=r"image of 3x64x64: .*backbone.input_size"):
        complete(transformer, 64)
