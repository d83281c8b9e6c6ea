"""Adapters of LoRA: where they are, what is trained and stored, and the merged network."""

import copy
import sys

import pytest
import torch
from timm.layers import Mlp
from torch import nn

from dml.core.errors import ConfigError, UserError
from dml.models.backbones import TimmBackbone
from dml.models.embedder import Embedder
from dml.models.freezing import describe_trained
from dml.models.lora import add_adapters, describe_adapters, merge_adapters
from dml.models.small_cnn import SmallCNN

IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def build(model="test_vit", seed=0, **options):
    torch.manual_seed(seed)
    return Embedder(TimmBackbone(model, "none", input_size=32), 4, **options)


def adapted(*arguments, **options):
    embedder = build()
    add_adapters(embedder, *arguments, **options)
    return embedder


def disturb(embedder):
    """Changes all that is trained, as steps do."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in embedder.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return embedder


def trained(embedder):
    return {name for name, p in embedder.named_parameters() if p.requires_grad}


def test_a_new_adapter_changes_nothing():
    torch.testing.assert_close(adapted()(IMAGES), build()(IMAGES), rtol=0, atol=0)


def test_the_adapters_and_the_head_are_trained():
    embedder = adapted(targets=["qkv"])
    kinds = {name.split(".")[-3] for name in trained(embedder) - {"head.linear.weight"}}
    assert kinds == {"lora_A", "lora_B", "head"}
    assert trained(embedder) >= {"head.linear.weight", "head.linear.bias"}
    assert describe_trained(embedder).startswith("0.0125 of ")  # 6 × 8 × (64 + 192) + 64 × 4 + 4
    assert describe_adapters(embedder, ["qkv"]) == "adapters in 6 linear layers: qkv"


@pytest.mark.parametrize(("rank", "alpha"), [(1, 16), (4, 2.0), (64, 64)])
def test_a_layer_is_that_of_the_paper(rank, alpha):
    """W x + b + alpha / rank · B A x."""
    embedder = adapted(rank, alpha, targets=["blocks.0.mlp.fc1"])
    disturb(embedder)
    layer = embedder.backbone.network.blocks[0].mlp.fc1
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert a.shape == (rank, 64)
    x = torch.randn(5, 64)
    plain = build().backbone.network.blocks[0].mlp.fc1
    torch.testing.assert_close(layer(x), plain(x) + alpha / rank * x @ a.T @ b.T)


@pytest.mark.parametrize(
    ("targets", "count"),
    [("all", 24), (["qkv"], 6), (["attn.proj", "fc2"], 12), (["fc1", "blocks.1.mlp.fc1"], 6)],
)
def test_targets(targets, count):
    embedder = adapted(targets=targets)
    assert sum(hasattr(layer, "lora_A") for layer in embedder.modules()) == count


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("test_convnext", "fc1, fc2"),
        ("test_mambaout", "fc1, fc2"),
        ("test_vit3", "qkv, proj, fc1, fc2"),
    ],
)
def test_families(model, kinds):
    embedder = build(model)
    add_adapters(embedder)
    assert describe_adapters(embedder).endswith(f"linear layers: {kinds}")
    embedder(IMAGES).sum().backward()
    gradients = [p.grad for name, p in embedder.named_parameters() if "lora_B" in name]
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in gradients)


class Uncalled(nn.Module):
    """A block that reads the weights of a layer, as attention of BEiT and EVA does."""

    def __init__(self, dim):
        super().__init__()
        self.mlp, self.qkv = Mlp(dim), nn.Linear(dim, dim)

    def forward(self, x, **options):
        return self.mlp(x) + nn.functional.linear(x, self.qkv.weight)


@pytest.fixture
def with_uncalled():
    embedder = build()
    network = embedder.backbone.network
    network.blocks[2] = Uncalled(64)
    return embedder


def test_a_layer_that_is_not_called_has_no_adapter(with_uncalled):
    add_adapters(with_uncalled)
    text = describe_adapters(with_uncalled)
    assert text.startswith("adapters in 22 linear layers: qkv, proj, fc1, fc2; none in qkv,")
    assert not hasattr(with_uncalled.backbone.network.blocks[2].qkv, "lora_A")
    with_uncalled(IMAGES).sum().backward()
    assert all(p.grad is not None for p in with_uncalled.parameters() if p.requires_grad)


def test_a_chosen_layer_that_is_not_called_is_refused(with_uncalled):
    with pytest.raises(ConfigError, match=r"targets: VisionTransformer does not call .* qkv"):
        add_adapters(with_uncalled, targets=["blocks.2.qkv"])


@pytest.mark.parametrize(
    ("network", "targets", "message"),
    [
        (build, ["qk"], "targets: VisionTransformer has no linear .*'qk'; did you mean 'qkv'"),
        (build, ["kv"], "'kv'"),  # the end of a name is no part of it
        (build, ["lp.fc1"], r"'lp\.fc1'"),
        (build, ["zzzzzz"], "'zzzzzz'; its blocks have qkv, proj, fc1, fc2"),
        (lambda: build("test_resnet"), "all", "backbone.train: lora needs linear layers, .*ResNet"),
        (lambda: Embedder(SmallCNN(width=1), 4), "all", "blocks of SmallCNN are not known"),
    ],
)
def test_impossible_adapters(network, targets, message):
    with pytest.raises(ConfigError, match=message):
        add_adapters(network(), targets=targets)


def test_without_peft_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"backbone.train: lora needs peft .*pip install peft"):
        adapted()


def test_the_state_holds_what_is_trained():
    embedder = disturb(adapted())
    state = embedder.state_dict()
    assert set(state) == trained(embedder) | {"base_hash"}
    restored = adapted()
    restored.load_state_dict(state)
    torch.testing.assert_close(restored(IMAGES), embedder(IMAGES), rtol=0, atol=0)


def test_the_state_of_random_weights_is_complete():
    state = disturb(adapted(has_file=False)).state_dict()
    assert {name for name, _ in build().named_parameters()} <= {
        name.replace(".base_layer", "") for name in state
    }


def test_adapters_of_other_weights_are_refused():
    other = build(seed=5)
    add_adapters(other)
    with pytest.raises(UserError, match="adapters belong to other weights"):
        other.load_state_dict(adapted().state_dict())


def test_a_copy_has_its_own_state():
    embedder = disturb(adapted())
    copied = copy.deepcopy(embedder)
    disturb(embedder)
    merge_adapters(embedder)
    assert set(copied.state_dict()) == trained(copied) | {"base_hash"}
    copied.load_state_dict(copied.state_dict())


@pytest.mark.parametrize("has_file", [True, False])
def test_the_merged_network_is_an_ordinary_one(has_file):
    embedder = disturb(adapted(has_file=has_file))
    expected = embedder(IMAGES)
    merge_adapters(embedder)
    assert embedder.state_dict().keys() == build().state_dict().keys()
    torch.testing.assert_close(embedder(IMAGES), expected, rtol=1e-5, atol=1e-6)
    ordinary = build(seed=9)
    ordinary.load_state_dict(embedder.state_dict())
    torch.testing.assert_close(ordinary(IMAGES), expected, rtol=1e-5, atol=1e-6)


def test_merging_leaves_an_ordinary_network():
    embedder = build()
    merge_adapters(embedder)
    torch.testing.assert_close(embedder(IMAGES), build()(IMAGES), rtol=0, atol=0)


def test_what_is_frozen_stays_in_evaluation_mode():
    embedder = build("test_convnext")
    network = embedder.backbone.network
    for stage in network.stages:
        for block in stage.blocks:
            block.drop_path = nn.Dropout(0.5)
    add_adapters(embedder)
    embedder.train()
    assert embedder.head.training
    assert not network.stem.training
