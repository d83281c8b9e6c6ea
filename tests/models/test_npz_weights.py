"""`.npz` files of JAX, as the authors of ViT publish them."""

import numpy as np
import pytest
import timm
import torch

from dml.core.errors import UserError
from dml.core.timm_records import find_record
from dml.models import timm_weights
from dml.models.backbones import TimmBackbone
from dml.models.npz_weights import count_numbers
from tests.core.servers import Behavior, serving


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    network = timm.create_model("test_vit", img_size=32).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return network


def to_jax(network):
    """The arrays of a ViT under the names and in the layouts of JAX."""
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    arrays = {
        "cls": state["cls_token"],
        "embedding/kernel": state["patch_embed.proj.weight"].transpose(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "head/kernel": state["head.weight"].T,
        "head/bias": state["head.bias"],
    }
    _norm(arrays, "Transformer/encoder_norm", state, "norm")
    width = state["cls_token"].shape[-1]
    for number, block in enumerate(network.blocks):
        old, new = f"blocks.{number}.", f"Transformer/encoderblock_{number}/"
        attention = f"{new}MultiHeadDotProductAttention_1/"
        heads = (block.attn.num_heads, width // block.attn.num_heads)
        weights = np.split(state[f"{old}attn.qkv.weight"], 3)
        biases = np.split(state[f"{old}attn.qkv.bias"], 3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            arrays[f"{attention}{part}/kernel"] = weight.T.reshape(width, *heads)
            arrays[f"{attention}{part}/bias"] = bias.reshape(heads)
        arrays[f"{attention}out/kernel"] = state[f"{old}attn.proj.weight"].T.reshape(*heads, width)
        arrays[f"{attention}out/bias"] = state[f"{old}attn.proj.bias"]
        _norm(arrays, f"{new}LayerNorm_0", state, f"{old}norm1")
        _norm(arrays, f"{new}LayerNorm_2", state, f"{old}norm2")
        for layer in (0, 1):
            dense = f"{new}MlpBlock_3/Dense_{layer}"
            arrays[f"{dense}/kernel"] = state[f"{old}mlp.fc{layer + 1}.weight"].T
            arrays[f"{dense}/bias"] = state[f"{old}mlp.fc{layer + 1}.bias"]
    return arrays


def _norm(arrays, new, state, old):
    arrays[f"{new}/scale"], arrays[f"{new}/bias"] = state[f"{old}.weight"], state[f"{old}.bias"]


@pytest.fixture
def write(tmp_path, network):
    def write_arrays(change=lambda arrays: arrays, name="vit.npz"):
        path = tmp_path / name
        np.savez(path, **change(to_jax(network)))
        return path

    return write_arrays


def test_the_network_is_that_of_the_arrays(write, network):
    backbone = TimmBackbone("test_vit", str(write()), 32).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), network.forward_features(images))


def test_position_embeddings_are_resized(write):
    backbone = TimmBackbone("test_vit", str(write()), 64).eval()
    assert backbone(torch.randn(1, 3, 64, 64)).shape == (1, 17, 64)


def without(*parts):
    def drop(arrays):
        return {n: a for n, a in arrays.items() if not any(part in n for part in parts)}

    return drop


def add_block(arrays):
    first = "Transformer/encoderblock_0/"
    more = {}
    for name, array in arrays.items():
        if name.startswith(first):
            more[name.replace("block_0", "block_9")] = array
    return arrays | more


def put_nan(arrays):
    bias = arrays["embedding/bias"].copy()
    bias[3] = np.nan
    return arrays | {"embedding/bias": bias}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("encoderblock_5"), "lacks an array: .*encoderblock_5"),
        (without("cls"), "lacks an array: .*cls"),
        (without("embedding/kernel"), "(did not find a supported|lacks an array)"),
        (add_block, "the file holds .* numbers, the network"),
        (put_nan, r"nothing for patch_embed\.proj\.bias, or NaN"),
        (lambda arrays: {"features": np.zeros((4, 3))}, "(did not find a supported|lacks an)"),
        (lambda arrays: {"a": np.array([{}], dtype=object)}, "not an .npz file of numbers"),
    ],
)
def test_arrays_of_anything_else_are_refused_in_one_line(write, change, reason):
    path = write(change)
    with pytest.raises(UserError, match=reason) as caught:
        TimmBackbone("test_vit", str(path), 32)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    for content in (b"no archive", b"PK\x03\x04damaged", b""):
        path = tmp_path / "vit.npz"
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"not an \.npz file of numbers, or damaged") as caught:
            TimmBackbone("test_vit", str(path), 32)
        assert "\n" not in str(caught.value)


def test_networks_that_have_no_such_loader_say_so(write):
    with pytest.raises(UserError, match=r"timm reads no \.npz files for RegNet"):
        TimmBackbone("regnety_002", str(write()), 32)


def test_a_second_address_may_be_such_a_file(write, network, tmp_path, monkeypatch):
    path = write()
    timm_weights._say.cache_clear()
    with serving(tmp_path, Behavior()) as address:
        record = find_record("test_vit.r160_in1k") | {"url": f"{address}/{path.name}"}
        monkeypatch.setattr("dml.models.timm_weights.find_record", lambda model: record)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        template = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        backbone = TimmBackbone("test_vit.r160_in1k", "imagenet", 32).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), network.forward_features(images))


def test_bit_files_are_read_too(tmp_path):
    torch.manual_seed(0)
    network = timm.create_model("resnetv2_50x1_bit", num_classes=0).eval()
    path = tmp_path / "bit.npz"
    np.savez(path, **_bit_arrays(network))
    backbone = TimmBackbone("resnetv2_50x1_bit", str(path), 64).eval()
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), network.forward_features(images))


def _bit_arrays(network):
    arrays = {
        "resnet/root_block/standardized_conv2d/kernel": network.stem.conv.weight,
        "resnet/head/conv2d/kernel": torch.zeros(1, 1, 4, 3),
    }
    norms = {"resnet/": network.norm}
    for number, stage in enumerate(network.stages, start=1):
        for unit, block in enumerate(stage.blocks, start=1):
            name = f"resnet/block{number}/unit{unit:02d}/"
            for part, layer in zip("abc", ("1", "2", "3"), strict=True):
                conv = getattr(block, f"conv{layer}").weight
                arrays[f"{name}{part}/standardized_conv2d/kernel"] = conv
                norms[f"{name}{part}/"] = getattr(block, f"norm{layer}")
            if block.downsample is not None:
                arrays[f"{name}a/proj/standardized_conv2d/kernel"] = block.downsample.conv.weight
    for name, norm in norms.items():
        arrays |= {f"{name}group_norm/gamma": norm.weight, f"{name}group_norm/beta": norm.bias}
    found = {}
    for name, array in arrays.items():
        value = array.detach().numpy()
        found[name] = value.transpose(2, 3, 1, 0) if "conv2d" in name else value
    return found


def test_numbers_are_counted_without_classifier_by_whole_names(tmp_path):
    sizes = {
        "embedding/kernel": 2,
        "Transformer/posembed_input/pos_embedding": 3,
        "head/kernel": 5,
        "pre_logits/bias": 7,
        "Transformer/head_norm/scale": 11,
        "overhead/bias": 13,
    }
    arrays = {name: np.ones(size, "f4") for name, size in sizes.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    assert count_numbers(tmp_path / "a.npz") == 11 + 13
    both = {f"img/{name}": array for name, array in arrays.items()}
    np.savez(tmp_path / "b.npz", **both, **{"txt/embedding": np.ones(17, "f4"), "t": np.ones(19)})
    assert count_numbers(tmp_path / "b.npz") == 11 + 13
