import pytest
import torch

from dml.core.errors import UserError
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN


@pytest.mark.parametrize(("side", "left"), [(8, 2), (9, 3), (16, 4), (28, 4), (32, 4), (64, 8)])
@pytest.mark.parametrize("width", [4, 16])
def test_maps_are_a_quarter_of_small_images_and_an_eighth_of_larger_ones(side, left, width):
    maps = SmallCNN(width=width)(torch.randn(2, 3, side, side))
    assert maps.shape == (2, 4 * width, left, left)


def test_input_is_the_datasets_own_size_unless_given():
    assert SmallCNN().input.size is None
    assert SmallCNN(input_size=32).input.size == 32
    assert SmallCNN().input.channel_order == "rgb"


def test_parameter_count():
    # 3×3 convolutions without bias, 3 → 16 → 32 → 64 channels, and a scale and shift for each
    expected = 9 * (3 * 16 + 16 * 32 + 32 * 64) + 2 * (16 + 32 + 64)
    assert sum(p.numel() for p in SmallCNN(width=16).parameters()) == expected


def test_it_has_no_imagenet_weights():
    with pytest.raises(UserError, match=r"backbone\.weights=imagenet"):
        SmallCNN(weights="imagenet")


def test_channels_last_gives_the_same_embeddings():
    torch.manual_seed(0)
    embedder = Embedder(SmallCNN(width=8), 5, pooling="avg+max").eval()
    images = torch.randn(4, 3, 16, 16)
    expected = embedder(images)
    embedder.to(memory_format=torch.channels_last)
    result = embedder(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_pretrained_on_characters():
    network = SmallCNN(weights="glyphs", width=32)
    assert all((layer.running_var != 1).any() for layer in network.modules() if is_norm(layer))
    with pytest.raises(UserError, match=r"small_cnn_glyphs"):
        SmallCNN(weights="glyphs", width=16)


def is_norm(layer):
    return isinstance(layer, torch.nn.BatchNorm2d)
