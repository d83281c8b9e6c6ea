import re
from dataclasses import replace
from pathlib import Path

import pytest
import timm
import torch
from timm.layers.pool1d import global_pool_nlc

from dml.core.errors import ConfigError, UserError
from dml.core.timm_records import find_record
from dml.models.backbones import TimmBackbone
from dml.models.embedder import Embedder
from dml.models.timm_networks import load_network

DOCUMENT = Path(__file__).parents[2] / "docs" / "networks.md"
ROW = re.compile(r"\| [^|]+ \| `(\w+)` \| (\d+) \| (\w+) \| (\d+) \| (\d+) \|")
ROWS = {model: expected for model, *expected in ROW.findall(DOCUMENT.read_text())}
REFUSED = re.findall(r"^\| `(\w+)` \| its features", DOCUMENT.read_text(), re.MULTILINE)
QUICK = {
    *("convnextv2_atto", "deit_tiny_distilled_patch16_224", "eva02_tiny_patch14_224"),
    *("levit_128s", "mobilenetv3_small_100", "regnety_002"),
}
MODELS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in ROWS]


def _network_of_timm(model, **options):
    """A timm network with its classifier; every tensor is random, layer scales included."""
    torch.manual_seed(0)
    network = timm.create_model(model, **options).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return network


def test_the_document_lists_thirty_networks_and_two_refused():
    assert len(ROWS) >= 30
    assert set(ROWS) >= QUICK
    assert len(REFUSED) == 2


@pytest.mark.parametrize("model", MODELS)
def test_a_state_dict_of_timm_gives_the_features_of_timm(model, tmp_path):
    size, kind, channels, native_channels = ROWS[model]
    network = _network_of_timm(model)
    file = tmp_path / "network.pth"
    torch.save(network.state_dict(), file)
    backbone = TimmBackbone(model, str(file), int(size)).eval()
    shape = (backbone.kind, backbone.channels, backbone.native_channels)
    assert shape == (kind, int(channels), int(native_channels))
    embedder = Embedder(backbone, None, pooling="native", head="none").eval()
    images = torch.randn(1, 3, int(size), int(size))
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(images), pre_logits=True)
        found = embedder.pool(embedder.features(images))
        if kind == "maps":
            assert Embedder(backbone, None)(images).shape == (1, int(channels))
    assert expected.std() > 0
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-6)


def test_patches_are_averaged_without_class_and_register_tokens():
    backbone = TimmBackbone("vit_little_patch16_reg4_gap_256", weights="none", input_size=64)
    embedder = Embedder(backbone, None, head="none", token_pooling="mean", normalize="none").eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        tokens = backbone.network.forward_features(images)
        assert tokens.shape[1] == 4 * 4 + 4  # patches and registers
        expected = global_pool_nlc(tokens, pool_type="avg", num_prefix_tokens=4)
        torch.testing.assert_close(embedder(images), expected)


@pytest.mark.parametrize("model", REFUSED)
def test_networks_that_do_not_fit_are_refused(model):
    if model not in timm.list_models():
        pytest.skip(f"timm {timm.__version__} has no {model}")
    size = find_record(model)["input_size"][1]
    with pytest.raises(
        ConfigError, match=r"^backbone: TimmBackbone .* returns a (list|tuple), not"
    ):
        TimmBackbone(model, "none", size)


def test_options_of_the_input_replace_those_of_the_record():
    recorded = TimmBackbone("test_vit", "none", 32).input
    record = find_record("test_vit")
    assert (recorded.mean, recorded.std) == (tuple(record["mean"]), tuple(record["std"]))
    channels = {"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    options = channels | {"interpolation": "bicubic", "crop_share": None}
    for name, value in options.items():
        assert getattr(recorded, name) != value
        changed = TimmBackbone("test_vit", "none", 32, **{name: value}).input
        assert changed == replace(recorded, **{name: value})


def test_a_size_that_does_not_fit_names_the_option():
    with pytest.raises(ConfigError, match=r"backbone\.input_size$"):
        TimmBackbone("test_vit", "none", 7)


def test_the_names_in_a_file_may_differ_in_the_classifier_only(tmp_path):
    network = _network_of_timm("test_vit", img_size=32)
    state = network.state_dict()
    without_classifier = {n: tensor for n, tensor in state.items() if not n.startswith("head.")}
    assert without_classifier.keys() < state.keys()
    first, *_, last = without_classifier
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(images), pre_logits=True)

    def load(content):
        torch.save(content, tmp_path / "network.pth")
        return load_network("test_vit", 32, str(tmp_path / "network.pth")).eval()

    of_another = state | {"head.more.weight": state[first]}
    for accepted in (state, without_classifier, of_another):
        with torch.no_grad():
            assert torch.equal(load(accepted)(images), expected)
    for added in ("head_norm.weight", "heads.0.weight", "head", "x.head.weight"):
        with pytest.raises(UserError, match=re.escape(added)):
            load(state | {added: state[first]})
    for lacking in (first, last):
        with pytest.raises(UserError, match=re.escape(lacking)):
            load({n: tensor for n, tensor in state.items() if n != lacking})


def efficientnet_state(network):
    """A state dict as `efficientnet_pytorch` stores it: other names in the same order."""
    return {
        f"_{name}".replace("_classifier.", "_fc."): tensor
        for name, tensor in network.state_dict().items()
    }


def test_efficientnets_of_another_package_are_renamed(tmp_path):
    network = _network_of_timm("tf_efficientnet_lite0")
    torch.save(efficientnet_state(network), tmp_path / "lite0.pth")
    loaded = load_network("tf_efficientnet_lite0", 64, str(tmp_path / "lite0.pth")).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = network.forward_features(images)
        assert torch.equal(loaded.forward_features(images), expected)
    with pytest.raises(UserError, match=r"tf_efficientnet_lite1 cannot be made from .*lite0\.pth"):
        load_network("tf_efficientnet_lite1", 64, str(tmp_path / "lite0.pth"))


def test_dinov3_is_pooled_by_its_class_token():
    backbone = TimmBackbone("vit_small_patch16_dinov3", "none", 32).eval()
    embedder = Embedder(backbone, None, pooling="native", head="none")
    features = torch.randn(2, 9, 384)  # class token, four registers, four patches
    assert torch.equal(embedder.pool(features), features[:, 0])


def test_a_network_of_a_user_on_the_hub(snapshot):
    network = _network_of_timm("test_vit", num_classes=3, img_size=32)
    timm.models.save_for_hf(network, snapshot("user/net"), model_config={"num_classes": 3})
    backbone = TimmBackbone("hf-hub:user/net", "imagenet", 32).eval()
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(backbone(images), network.forward_features(images))
    with pytest.raises(ConfigError, match=r"backbone\.model=hf-hub:user/other cannot be read: "):
        find_record("hf-hub:user/other")
    with pytest.raises(ConfigError, match=r"of the hub: backbone\.model=hf-hub:user/net"):
        find_record("user/net")
