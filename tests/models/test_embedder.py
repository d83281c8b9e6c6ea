import pytest
import torch
from torch import nn

from dml.core.errors import UserError
from dml.models.backbones import Backbone, InputSpec
from dml.models.embedder import NORMALIZERS, Embedder, compile_backbone, hash_weights
from dml.models.small_cnn import SmallCNN


class Patches(Backbone):
    """A transformer's shapes at no cost: one token per 4×4 patch, class token first."""

    kind = "tokens"
    prefix_tokens = 1
    channels = 6

    def __init__(self):
        super().__init__()
        self.input = InputSpec(size=8)
        self.class_token = nn.Parameter(torch.randn(1, 1, 6))
        self.project = nn.Conv2d(3, 6, 4, stride=4)

    def forward(self, images):
        patches = self.project(images).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(images), -1, -1), patches], dim=1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def images():
    return torch.randn(6, 3, 8, 8)


def test_each_pooling_equals_its_definition():
    maps, tokens = torch.randn(2, 3, 4, 5), torch.randn(2, 5, 6)
    average = torch.stack([maps[:, :, i, j] for i in range(4) for j in range(5)]).sum(0) / 20
    maximum = maps.flatten(2).sort(dim=2).values[:, :, -1]
    patches = (tokens[:, 1] + tokens[:, 2] + tokens[:, 3] + tokens[:, 4]) / 4
    for pooling, expected in {"avg": average, "max": maximum, "avg+max": average + maximum}.items():
        torch.testing.assert_close(Embedder(SmallCNN(), 4, pooling=pooling).pool(maps), expected)
    for pooling, expected in {"token": tokens[:, 0], "mean": patches}.items():
        embedder = Embedder(Patches(), 4, token_pooling=pooling, pooling="avg+max")
        torch.testing.assert_close(embedder.pool(tokens), expected)


@pytest.mark.parametrize("prefix", [0, 1, 2, 5])  # without class token; with it; with registers
def test_only_patches_are_averaged(prefix):
    backbone = Patches()
    backbone.prefix_tokens = prefix
    tokens = torch.randn(2, 9, 6)
    pooled = Embedder(backbone, 4, token_pooling="mean").pool(tokens)
    patches = [tokens[:, number] for number in range(prefix, 9)]
    torch.testing.assert_close(pooled, sum(patches) / len(patches))


@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_normalizers(normalize):
    embedder = Embedder(SmallCNN(width=2), None, head="none", normalize=normalize)
    short, long = torch.full((1, 8), 0.1), torch.full((1, 8), 2.0)
    result = embedder.project(torch.cat([short, long]))
    expected = {
        "l2": torch.full((2, 8), 8**-0.5),
        "clipped": torch.cat([short, torch.full((1, 8), 8**-0.5)]),
        "none": torch.cat([short, long]),
    }[normalize]
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("head", ["linear", "linear+relu", "mlp", "none"])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_the_head_is_the_textbook_one(head, layer_norm, bias):
    options = {"head": head, "layer_norm": layer_norm, "bias": bias, "normalize": "none"}
    options["hidden"] = 7
    embedder = Embedder(SmallCNN(width=2), None if head == "none" else 5, **options)
    pooled = torch.randn(4, 8)
    expected = pooled
    if layer_norm:
        deviation = pooled.var(dim=1, correction=0, keepdim=True).add(1e-5).sqrt()
        expected = (pooled - pooled.mean(dim=1, keepdim=True)) / deviation
    if head == "mlp":
        hidden = embedder.head.hidden
        expected = (expected @ hidden.weight.T + hidden.bias).clamp(min=0)
        assert expected.shape == (4, 7)
        assert (expected == 0).any()
    if head != "none":
        linear = embedder.head.linear
        assert (linear.bias is not None) is bias
        expected = expected @ linear.weight.T + (linear.bias if bias else 0)
    if head == "linear+relu":
        expected = expected.clamp(min=0)
        assert (expected == 0).any()
    torch.testing.assert_close(embedder.project(pooled), expected)


@pytest.mark.parametrize("init", ["default", "kaiming_fan_out", "xavier_uniform"])
def test_the_first_weights_of_the_head(init):
    """He et al. (2015) by the outputs, and Glorot and Bengio (2010), with biases of 0."""
    linear = Embedder(SmallCNN(width=64), 16, init=init).head.linear
    weight, largest = linear.weight.detach(), linear.weight.detach().abs().max().item()
    deviation = {"default": (3 * 256) ** -0.5, "kaiming_fan_out": (2 / 16) ** 0.5}
    deviation["xavier_uniform"] = (2 / (16 + 256)) ** 0.5
    assert weight.std().item() == pytest.approx(deviation[init], rel=0.05)
    is_normal = init == "kaiming_fan_out"
    assert (largest > 3 * deviation[init]) is is_normal
    assert linear.bias.any().item() is (init == "default")


@pytest.mark.parametrize(("momentum", "share"), [(None, 0.1), (0.25, 0.25), (0.0, 0.0)])
def test_the_share_of_a_batch_in_the_statistics(momentum, share, images):
    embedder = Embedder(SmallCNN(width=4), 5, batch_norm_momentum=momentum).train()
    outputs = []
    embedder.backbone.stem[0].register_forward_hook(lambda *call: outputs.append(call[2]))
    embedder(images)
    mean = outputs[0].detach().mean(dim=(0, 2, 3))
    torch.testing.assert_close(embedder.backbone.stem[1].running_mean, share * mean)


def test_every_weight_and_its_name_count_in_the_digest():
    embedder = Embedder(SmallCNN(width=2), 3)
    digests = {hash_weights(embedder)}
    for value in embedder.state_dict().values():
        value.view(-1)[-1] += 1
        digests.add(hash_weights(embedder))
        value.view(-1)[-1] -= 1
    assert len(digests) == len(embedder.state_dict()) + 1
    digests.add(hash_weights(nn.Sequential(embedder)))  # equal values, other names
    assert len(digests) == len(embedder.state_dict()) + 2
    assert {len(digest) for digest in digests} == {16}


@pytest.mark.parametrize("backbone", [lambda: SmallCNN(width=4), Patches])
def test_features_then_embed_equals_forward(backbone, images):
    embedder = Embedder(backbone(), 5, pooling="avg+max").eval()
    expected = embedder(images)
    assert expected.shape == (6, 5)
    torch.testing.assert_close(embedder.embed(embedder.features(images)), expected)
    pooled = embedder.pool(embedder.features(images))
    torch.testing.assert_close(embedder.project(pooled), expected)


def test_frozen_statistics_survive_every_call_of_train(images):
    embedder = Embedder(SmallCNN(width=4), 5, freeze_batch_norm=True)
    buffers = dict(embedder.named_buffers())
    before = {name: value.clone() for name, value in buffers.items()}
    assert before
    around = nn.Sequential(embedder)
    for module in (around, embedder):
        embedder.eval()
        module.train()
        embedder(images)
        assert all(torch.equal(value, before[name]) for name, value in buffers.items())
    embedder.train()
    assert embedder.training


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_scale_and_shift_train_unless_frozen_too(affine, statistics, images):
    embedder = Embedder(
        SmallCNN(width=4), 5, freeze_batch_norm=statistics, freeze_batch_norm_affine=affine
    ).train()
    embedder(images)[:, 0].sum().backward()
    layer = embedder.backbone.layers[1]
    for parameter in (layer.weight, layer.bias):
        assert parameter.requires_grad is not affine
        assert (parameter.grad is None) is affine


def test_bfloat16_autocast_gives_float32_embeddings(images):
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = Embedder(SmallCNN(width=8), 5)(images)
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(6))


def test_native_pooling_is_that_of_the_network(images):
    with pytest.raises(UserError, match=r"embedder\.pooling=native: .*use embedder\.pooling=avg"):
        Embedder(SmallCNN(width=4), 5, pooling="native")
    network = SmallCNN(width=4)
    network.native_channels = 3
    network.pool_natively = lambda maps_Bchw: maps_Bchw.amin(dim=(2, 3))[:, :3]
    embedder = Embedder(network, None, pooling="native", head="none", normalize="none")
    assert embedder.embedding_size == 3
    expected = embedder.features(images).amin(dim=(2, 3))[:, :3]
    torch.testing.assert_close(embedder(images), expected)


@pytest.mark.parametrize(
    ("choice", "calls"),
    [
        (False, []),
        (True, [{"mode": None}]),
        ("reduce-overhead", [{"mode": "reduce-overhead"}]),
    ],
)
def test_the_backbone_is_compiled_in_a_mode_of_torch(choice, calls, monkeypatch):
    embedder = Embedder(SmallCNN(width=2), 4)
    found = []
    monkeypatch.setattr(embedder.backbone, "compile", lambda **options: found.append(options))
    compile_backbone(embedder, choice)
    assert found == calls
