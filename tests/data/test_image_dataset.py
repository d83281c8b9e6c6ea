from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dml.core.errors import UserError
from dml.data.image_dataset import ImageDataset
from dml.data.image_index import ImageIndex, Subset
from dml.data.transforms import eval_transform
from tests.data.test_image_index import small_index


class Noise(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return torch.rand(3)


def test_draw_decides_the_augmentation_and_leaves_the_global_generator_alone():
    dataset = ImageDataset(Subset(small_index(), np.arange(6)), Noise())
    torch.manual_seed(1)
    expected_next = torch.rand(1)
    torch.manual_seed(1)
    first, again, other = dataset[(0, 7)][0], dataset[(3, 7)][0], dataset[(0, 8)][0]
    assert torch.equal(torch.rand(1), expected_next)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_labels_of_a_batch_are_those_of_the_subset():
    """Of rows that are not the first ones, and of classes whose numbers have gaps."""
    subset = Subset(small_index(), np.array([3, 5, 1]))
    together = ImageDataset(subset, eval_transform(None))
    alone = ImageDataset(subset, nn.Identity())
    assert isinstance(alone.__getitems__([2, 0]), list)
    images, labels = together.__getitems__([2, 0, 1])
    assert labels.tolist() == [alone[row][1] for row in (2, 0, 1)] == [0, 0, 1]
    assert torch.equal(images, torch.stack([alone[row][0] for row in (2, 0, 1)]))


def test_options_of_an_index_decide_the_pixels(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (4, 2)).save(tmp_path / "turned.jpg", exif=exif)
    Image.new("RGBA", (1, 1), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    files = [tmp_path / "turned.jpg", tmp_path / "clear.png"]
    index = ImageIndex("x", files, np.arange(2), np.array(["train"] * 2))
    colors = {"white": [255, 255, 255], "#102030": [16, 32, 48]}
    for upright, shape in ((False, (3, 2, 4)), (True, (3, 4, 2))):
        for background, color in colors.items():
            options = {"apply_orientation": upright, "background": background}
            dataset = ImageDataset(Subset(replace(index, **options), np.arange(2)), nn.Identity())
            assert dataset[0][0].shape == shape
            assert dataset[1][0].flatten().tolist() == color
    small = Subset(replace(index, max_pixels=7), np.arange(2))
    with pytest.raises(UserError, match="4x2 pixels"):
        ImageDataset(small, nn.Identity())[0]
