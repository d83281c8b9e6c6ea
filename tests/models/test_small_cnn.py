import pytest
import torch

from dml.core.errors import UserError
from dml.models.small_cnn import SmallCNN


@pytest.mark.parametrize(("side", "left"), [(8, 2), (9, 3), (16, 4), (28, 4), (32, 4), (64, 8)])
@pytest.mark.parametrize("width", [4, 16])
def test_maps_are_a_quarter_of_small_images_and_an_eighth_of_larger_ones(side, left, width):
    maps = SmallCNN(width=width)(torch.randn(2, 3, side, side))
    assert maps.shape == (2, 4 * width, left, left)


@pytest.mark.parametrize(
    ("height", "width", "expected"), [(16, 40, (4, 10)), (40, 16, (10, 4)), (17, 40, (2, 5))]
)
def test_the_shorter_side_decides_for_oblong_images(height, width, expected):
    assert SmallCNN(width=4)(torch.randn(1, 3, height, width)).shape[2:] == expected


def test_pretrained_on_characters():
    network = SmallCNN(weights="glyphs", width=32)
    assert {value.dtype for value in network.parameters()} == {torch.float32}, "stored as float16"
    buffers = network.named_buffers()
    assert all((v != 1).any() for name, v in buffers if name.endswith("running_var"))
    with pytest.raises(UserError, match=r"small_cnn_glyphs"):
        SmallCNN(weights="glyphs", width=16)
