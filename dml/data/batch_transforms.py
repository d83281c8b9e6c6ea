"""Augmentations of a whole batch of small images at once.

Augmenting the small images of stand-in datasets one by one would take longer than training on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class BatchTransform(nn.Module):
    """A transform with parameters drawn per image and applied to a whole batch at once.

    The result for an image does not depend on the other images of the batch.
    """

    def draw(self) -> Tensor:
        """Returns the random parameters of one image (k), drawn from the global generator."""
        return torch.empty(0)

    def change(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Transforms uint8 images B×3×H×W with their parameters B×k."""
        raise NotImplementedError

    def forward(self, image: Tensor) -> Tensor:
        """Transforms one image 3×H×W."""
        drawn = self.draw().to(image.device, non_blocking=True)
        return self.change(image[None], drawn[None])[0]


def batch_transforms(transform: object) -> list[BatchTransform] | None:
    """Returns the steps of a transform if all of them can be applied to batches, else None."""
    parts = list(transform) if isinstance(transform, nn.Sequential) else [transform]
    steps = [part for part in parts if isinstance(part, BatchTransform)]
    return steps if len(steps) == len(parts) else None


class RandomFlip(BatchTransform):
    """Mirrors each image with probability 0.5, with one draw per image as in torchvision."""

    def draw(self) -> Tensor:
        """Returns one number in [0, 1)."""
        return torch.rand(1)

    def forward(self, image: Tensor) -> Tensor:
        """Mirrors one image or not; decided on the CPU, which need not wait for a GPU."""
        return image.flip(-1) if self.draw()[0] < 0.5 else image

    def change(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Mirrors the images whose number is below one half."""
        return torch.where(drawn[:, :, None, None] < 0.5, images.flip(-1), images)


class Shift(BatchTransform):
    """Shifts an image by up to `padding` pixels in each direction; fills the border with zeros."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def draw(self) -> Tensor:
        """Returns the top and left coordinates of the crop from the padded image."""
        return torch.randint(0, 2 * self.padding + 1, (2,))

    def change(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Crops the padded images."""
        if self.padding == 0:
            return images
        batch, _, height, width = images.shape
        padded_BHWC = nn.functional.pad(images, [self.padding] * 4).permute(0, 2, 3, 1)
        which_B11 = torch.arange(batch, device=images.device)[:, None, None]
        rows_BH1 = (drawn[:, :1] + torch.arange(height, device=images.device))[:, :, None]
        columns_B1W = (drawn[:, 1:] + torch.arange(width, device=images.device))[:, None]
        return padded_BHWC[which_B11, rows_BH1, columns_B1W].permute(0, 3, 1, 2)


class Affine(BatchTransform):
    """Rotates, shears, scales and shifts an image; fills the border with zeros.

    Args:
        degrees: largest rotation and largest shear, in degrees.
        scale: smallest and largest scale factor.
        padding: largest shift in pixels; fractional, unlike that of `Shift`.
    """

    def __init__(self, degrees: float, scale: Sequence[float], padding: int) -> None:
        super().__init__()
        self.degrees, self.scale, self.padding = degrees, tuple(scale), padding

    def draw(self) -> Tensor:
        """Returns the parameters a, b, c, d, right, down of the map from output to input pixels.

        Relative to the center, output pixel (x, y) is input pixel (a·u + b·v, c·u + d·v) with
        (u, v) = (x − right, y − down).
        """
        turn, slant, zoom, right, down = (2 * torch.rand(5, dtype=torch.float64) - 1).tolist()
        angle, shear = math.radians(self.degrees * turn), math.radians(self.degrees * slant)
        low, high = self.scale
        size = (low + high + (high - low) * zoom) / 2
        cos, sin, tan = math.cos(angle) / size, math.sin(angle) / size, math.tan(shear)
        shift = (self.padding * right, self.padding * down)
        return torch.tensor([cos, sin + cos * tan, -sin, cos - sin * tan, *shift])

    def change(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Samples every image at the mapped coordinates by bilinear interpolation."""
        height, width = images.shape[2:]
        # No matrix products: their rounding would depend on the batch size.
        x_W, y_H1 = _centered(width, images.device), _centered(height, images.device)[:, None]
        a, b, c, d, right, down = drawn[:, :, None, None].unbind(1)
        u, v = x_W - right, y_H1 - down
        grid_BHW2 = torch.stack(
            [(a * u + b * v) * (2 / width), (c * u + d * v) * (2 / height)], dim=-1
        )
        moved = nn.functional.grid_sample(images.float(), grid_BHW2, align_corners=False)
        return moved.round().to(torch.uint8)


def _centered(count: int, device: torch.device) -> Tensor:
    """Returns pixel coordinates along one side, 0 in the middle of the image."""
    return torch.arange(count, device=device) - (count - 1) / 2
