import numpy as np
import torch
from torch import nn

from dml.data.image_dataset import ImageDataset
from dml.data.image_index import Subset
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
