"""Backbones of which a part is trained, arguments of timm's networks, and checkpointing."""

import copy

import pytest
import torch
from torch import nn

from dml.core.errors import ConfigError
from dml.models.backbones import TimmBackbone
from dml.models.embedder import Embedder
from dml.models.freezing import describe_trained, freeze_backbone
from dml.models.small_cnn import SmallCNN


def build(model="test_vit", **options):
    torch.manual_seed(0)
    return Embedder(TimmBackbone(model, "none", input_size=32, **options), 4)


def trained_blocks(embedder):
    """The first two parts of the names of trained parameters of the network."""
    names = [name for name, p in embedder.named_parameters() if p.requires_grad]
    return {".".join(name.removeprefix("backbone.network.").split(".")[:2]) for name in names}


HEAD = {"head.linear"}
POOL = {f"attn_pool.{name}" for name in ("kv", "latent", "mlp", "norm", "proj", "q")}


@pytest.mark.parametrize(
    ("model", "train", "expected"),
    [
        ("test_vit", "none", HEAD),
        ("test_vit", 1, HEAD | {"blocks.5", "norm.weight", "norm.bias"}),
        ("test_vit", 2, HEAD | {"blocks.4", "blocks.5", "norm.weight", "norm.bias"}),
        ("test_resnet", 1, HEAD | {"layer4.0"}),
        ("test_resnet", 4, HEAD | {"layer1.0", "layer2.0", "layer3.0", "layer4.0"}),
        ("test_convnext", 1, HEAD | {"stages.3", "head.norm"}),
        ("test_vit3", 1, HEAD | {"blocks.8", "norm.weight", "norm.bias", *POOL}),
        ("test_efficientnet", 1, HEAD | {"blocks.4", "conv_head.weight", "bn2.weight", "bn2.bias"}),
    ],
)
def test_the_last_blocks_are_trained(model, train, expected):
    embedder = build(model)
    freeze_backbone(embedder, train)
    assert trained_blocks(embedder) == expected


@pytest.mark.parametrize(
    ("model", "block"),
    [
        ("densenet121", "features.denseblock4"),
        ("nfnet_f0", "stages.3"),
        ("fastvit_t8", "stages.3"),
        ("eva02_tiny_patch14_224", "blocks.11"),
        ("vit_base_patch16_siglip_224", "blocks.11"),
        ("swin_tiny_patch4_window7_224", "layers.3"),
    ],
)
def test_the_last_block_is_no_norm_or_pooling(model, block):
    with torch.device("meta"):
        embedder = Embedder(TimmBackbone(model, "none"), 4, token_pooling="mean")
    freeze_backbone(embedder, 1)
    assert block in trained_blocks(embedder)


@pytest.mark.parametrize(("train", "moved"), [("none", set()), (1, {"layer4"})])
def test_statistics_of_frozen_blocks_stay(train, moved):
    embedder = build("test_resnet")
    freeze_backbone(embedder, train)
    before = copy.deepcopy(embedder.state_dict())
    embedder.train()
    embedder.eval()
    embedder.train()  # as after an evaluation
    embedder(torch.randn(4, 3, 32, 32))
    changed = {
        name.split(".")[2]
        for name, value in embedder.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert changed == moved


def test_all_changes_nothing():
    embedder = build("test_resnet")
    freeze_backbone(embedder, "all")
    assert all(parameter.requires_grad for parameter in embedder.parameters())
    embedder.train()
    assert all(module.training for module in embedder.modules())


@pytest.mark.parametrize(
    ("network", "train", "message"),
    [
        (build, 7, "7 blocks, but the network has 6; use all"),
        (lambda: Embedder(SmallCNN(width=1), 4), 1, "SmallCNN are not known; use all or none"),
    ],
)
def test_blocks_that_there_are_not(network, train, message):
    with pytest.raises(ConfigError, match=f"backbone.train: .*{message}"):
        freeze_backbone(network(), train)


def test_the_count_of_trained_parameters():
    embedder = nn.Module()
    embedder.a = nn.Parameter(torch.zeros(1_000, 1_000))
    embedder.b = nn.Parameter(torch.zeros(3_000, 1_000), requires_grad=False)
    assert describe_trained(embedder) == "1 of 4 million parameters of the network"


@pytest.mark.parametrize("model", ["test_vit", "test_convnext"])
def test_checkpointing_changes_no_loss_and_no_gradient(model):
    plain, checkpointed = build(model).double(), build(model, checkpointing=True).double()
    images = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    for embedder in (plain, checkpointed):
        embedder.train()
        embedder(images).square().sum().backward()
        (embedder(images) * torch.arange(4)).sum().backward()
    for expected, parameter in zip(plain.parameters(), checkpointed.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=1e-12, atol=1e-14)


def count_kept(embedder, images):
    """Bytes that a forward pass keeps for the backward pass."""
    kept = 0

    def pack(tensor):
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        embedder.train()(images)
    return kept


def test_checkpointing_keeps_less():
    images = torch.randn(4, 3, 32, 32)
    assert count_kept(build(checkpointing=True), images) < 0.6 * count_kept(build(), images)


def test_arguments_of_the_network():
    embedder = build(args={"drop_path_rate": 0.5, "init_values": 0.1})
    rates = [getattr(module, "drop_prob", 0) for module in embedder.modules()]
    assert max(rates) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"drop_path": 0.1}, "args.drop_path: VisionTransformer takes no such argument; did you "),
        ({"xyz": 1}, r"args.xyz: VisionTransformer takes no such argument; it takes act_layer, "),
        ({"num_classes": 3}, "args.num_classes: is set by other options; leave it out"),
    ],
)
def test_arguments_that_the_network_does_not_take(args, message):
    with pytest.raises(ConfigError, match=f"backbone.{message}"):
        build(args=args)
