"""Transforms from a decoded image to the input of a network.

Crops and flips work on uint8 images in the loader; `ToInput` converts whole batches to floats on
the device, so that only a quarter of the bytes is copied between processes and to the GPU. Small
images, as of stand-ins, are augmented by whole batches: one by one would take longer than training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

from dml.data.decode import release

# Longer by shorter side of an image that is thin: no photo, and enlarged as a whole it would take
# a gigabyte (a line of 2000 pixels becomes 256 × 512,000).
THIN = 10


def train_transform(
    augmentation: str,
    size: int | None,
    *,
    resize: int | None = None,
    scale: Sequence[float] = (0.08, 1.0),
    ratio: Sequence[float] = (3 / 4, 4 / 3),
    flip: bool = True,
    padding: int = 0,
    degrees: float = 0.0,
    interpolation: str = "bilinear",
) -> nn.Module:
    """Returns the augmentation of uint8 images 3×H×W for training.

    Args:
        augmentation: `random_resized_crop` (in the papers), or for small stand-in images
            `random_crop` (a shift by at most `padding` whole pixels) and `random_affine` (rotation
            and shear by up to `degrees`, scaling by `scale`, shift by up to `padding` pixels), or
            `none`.
        size: side of the result in pixels; None keeps the size of the image.
        resize: length of the shorter side before the random crop (MLRC: 256); None: as decoded. The
            longer side is at most ten times as long, except for random_resized_crop.
        scale, ratio: ranges of relative area and aspect ratio of the random crop.
        flip: mirror each image with probability 0.5.
        padding: largest shift in pixels, for `random_crop` and `random_affine`.
        degrees: largest rotation and shear, for `random_affine`.
        interpolation: of resizing: `bilinear` or `bicubic`.
    """
    steps: list[nn.Module] = []
    mode = InterpolationMode(interpolation)
    resized = None if resize is None else ShorterSide(resize, mode)
    if augmentation == "random_resized_crop":
        if size is None:
            raise ValueError("size: random_resized_crop needs a number of pixels")
        steps.append(RandomResizedCrop(size, scale, ratio, mode, resized))
    elif resized is not None:
        steps.append(resized)
    if augmentation == "random_crop":
        steps.append(Shift(padding))
    elif augmentation == "random_affine":
        steps.append(Affine(degrees, scale, padding))
    if augmentation != "random_resized_crop" and size is not None:
        steps.append(ResizeToSquare(size, mode))
    if flip:
        steps.append(RandomFlip())
    return nn.Sequential(*steps)


def eval_transform(
    size: int | None, *, resize: int | None = None, interpolation: str = "bilinear"
) -> nn.Module:
    """Returns the transform for evaluation: resize of the shorter side, then a central crop.

    Args:
        size: side of the crop in pixels; None leaves images unchanged.
        resize: length of the shorter side; None resizes the whole image to `size`×`size`, for
            stand-ins with images smaller than the network's input.
        interpolation: of resizing: `bilinear` or `bicubic`.
    """
    if size is None:
        return nn.Sequential()
    mode = InterpolationMode(interpolation)
    if resize is None:
        return ResizeToSquare(size, mode)
    return nn.Sequential(CentralCrop(size, ShorterSide(resize, mode)))


def is_thin(height: int, width: int) -> bool:
    """Returns whether an image is so long that it must not be resized as a whole."""
    return max(height, width) > THIN * min(height, width)


class ShorterSide(nn.Module):
    """Resizes the shorter side of an image, as `v2.Resize`, or only what is needed of the result.

    Args:
        side: length of the shorter side in pixels.
        interpolation: `bilinear` or `bicubic`.
    """

    def __init__(self, side: int, interpolation: InterpolationMode) -> None:
        super().__init__()
        self.resize = v2.Resize(side, interpolation)
        self.side, self.interpolation = side, interpolation

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """Returns height and width of the result for an image of a size."""
        longer = int(self.side * max(height, width) / min(height, width))
        return (self.side, longer) if height <= width else (longer, self.side)

    def window(self, image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
        """Returns a window of the result, 3×height×width.

        Of a thin image only the pixels below the window are resized, so that the memory does not
        depend on the length of the image; they may differ by a level from those of the whole.
        """
        if not is_thin(*image.shape[1:]):
            return F.crop(self.resize(image), top, left, height, width)
        window = (top, left, height, width)
        return resize_window(image, self.resized(*image.shape[1:]), window, self.interpolation)

    def whole(self, image: Tensor) -> Tensor:
        """Resizes the whole image for a cache, except a thin one that would become larger.

        Of that one, the transforms resize a window at each access.
        """
        height, width = image.shape[1:]
        if not is_thin(height, width):
            return self.resize(image)
        if min(height, width) <= self.side:
            return image
        return self.window(image, 0, 0, *self.resized(height, width))

    def forward(self, image: Tensor) -> Tensor:
        """Resizes the whole image; the longer side is at most `THIN` times as long."""
        height, width = image.shape[1:]
        if not is_thin(height, width):
            return self.resize(image)
        new = [min(length, THIN * self.side) for length in self.resized(height, width)]
        return F.resize(image, new, self.interpolation)


def resize_window(
    image: Tensor,
    size: tuple[int, int],
    window: tuple[int, int, int, int],
    interpolation: InterpolationMode,
) -> Tensor:
    """Returns a window of a resized image, in memory that the rest of the image does not change.

    Args:
        image: uint8 3×H×W.
        size: height and width of the whole image when resized.
        window: top, left, height and width, in pixels of the resized image.
        interpolation: `bilinear` or `bicubic`.
    """
    top, left, height, width = window
    rows, first_row, last_row = _source_range(image.shape[1], size[0], top, height)
    columns, first_column, last_column = _source_range(image.shape[2], size[1], left, width)
    part_HWC = np.ascontiguousarray(image[:, rows, columns].permute(1, 2, 0).numpy())
    box = (first_column, first_row, last_column, last_row)
    resampling = Image.Resampling[interpolation.name]
    # Pillow takes the pixels around a fractional box into account, unlike torch.
    resized = Image.fromarray(part_HWC).resize((width, height), resampling, box)
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)


def _source_range(length: int, resized: int, start: int, count: int) -> tuple[slice, float, float]:
    """Returns the source pixels of a range of resized pixels, and the range's ends in these."""
    step = length / resized
    first, last = start * step, min((start + count) * step, length)
    reach = math.ceil(2 * max(1.0, step)) + 1  # of the bicubic filter, which is the wider one
    begin = max(0, math.floor(first) - reach)
    end = min(length, math.ceil(last) + reach)
    return slice(begin, end), first - begin, last - begin


class CentralCrop(nn.Module):
    """Crops the center of a resized image."""

    def __init__(self, size: int, resized: ShorterSide) -> None:
        super().__init__()
        self.size, self.resized = size, resized

    def forward(self, image: Tensor) -> Tensor:
        """Resizes and crops one image 3×H×W."""
        height, width = self.resized.resized(*image.shape[1:])
        top, left = round((height - self.size) / 2), round((width - self.size) / 2)
        return release(self.resized.window(image, top, left, self.size, self.size))


class RandomResizedCrop(v2.RandomResizedCrop):
    """torchvision's random crop with equal draws and pixels, faster on single images.

    Args:
        size, scale, ratio, interpolation: as of torchvision.
        resized: resizes the shorter side before the crop; None: the crop is of the image.
    """

    def __init__(
        self,
        size: int,
        scale: Sequence[float],
        ratio: Sequence[float],
        interpolation: InterpolationMode,
        resized: ShorterSide | None = None,
    ) -> None:
        super().__init__(size, scale, ratio, interpolation)
        self.resized = resized

    def forward(self, image: Tensor) -> Tensor:
        """Crops and resizes one image 3×H×W."""
        if self.resized is None:
            crop = F.crop(image, **self.make_params([image]))
        else:
            size = self.resized.resized(*image.shape[1:])
            whole = image[:1, :1, :1].expand(1, *size)  # its size decides, and takes no memory
            crop = self.resized.window(image, **self.make_params([whole]))
        # Channels innermost: the fast path of the interpolation.
        crop_HWC = crop.permute(1, 2, 0).contiguous()
        return release(F.resize(crop_HWC.permute(2, 0, 1), self.size, self.interpolation))


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
        return self.change(image[None], self.draw()[None])[0]


class ResizeToSquare(BatchTransform):
    """Resizes an image to `size`×`size`, ignoring its aspect ratio."""

    def __init__(self, size: int, interpolation: InterpolationMode) -> None:
        super().__init__()
        self.size, self.interpolation = [size, size], interpolation

    def change(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Resizes all images; returns images of that size unchanged."""
        return F.resize(images, self.size, self.interpolation)


class RandomFlip(BatchTransform):
    """Mirrors each image with probability 0.5, with one draw per image as in torchvision."""

    def draw(self) -> Tensor:
        """Returns one number in [0, 1)."""
        return torch.rand(1)

    def forward(self, image: Tensor) -> Tensor:
        """Mirrors one image, without copying the others."""
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
        batch, _, height, width = images.shape
        padded_BHWC = nn.functional.pad(images, [self.padding] * 4).permute(0, 2, 3, 1)
        which_B11 = torch.arange(batch)[:, None, None]
        rows_BH1 = (drawn[:, :1] + torch.arange(height))[:, :, None]
        columns_B1W = (drawn[:, 1:] + torch.arange(width))[:, None]
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
        x_W = torch.arange(width) - (width - 1) / 2  # 0 in the middle of the image
        y_H1 = (torch.arange(height) - (height - 1) / 2)[:, None]
        a, b, c, d, right, down = drawn[:, :, None, None].unbind(1)
        u, v = x_W - right, y_H1 - down
        grid_BHW2 = torch.stack(
            [(a * u + b * v) * (2 / width), (c * u + d * v) * (2 / height)], dim=-1
        )
        moved = nn.functional.grid_sample(images.float(), grid_BHW2, align_corners=False)
        return moved.round().to(torch.uint8)


class Views(nn.Module):
    """The test transform of an image and `count` augmentations of it, stacked into one tensor.

    Args:
        test, train: transforms of a uint8 image to one size.
        count: number of augmentations.
    """

    def __init__(self, test: nn.Module, train: nn.Module, count: int) -> None:
        super().__init__()
        self.steps = [test, *[train] * count]

    def forward(self, image: Tensor) -> Tensor:
        """Returns (1 + count)×3×h×w."""
        return torch.stack([step(image) for step in self.steps])


class ToInput(nn.Module):
    """Converts batches of uint8 RGB images to the float input of a backbone.

    Args:
        mean, std: mean and standard deviation per channel, in the network's channel order.
        channel_order: `rgb` or `bgr`.
        scale: largest value of a channel before `mean` is subtracted (1 or 255).
    """

    gain: Tensor
    offset: Tensor

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        channel_order: str = "rgb",
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.bgr = channel_order == "bgr"
        # (x · scale/255 − mean) / std as one multiplication and one addition
        std_C = torch.tensor(std).view(-1, 1, 1)
        mean_C = torch.tensor(mean).view(-1, 1, 1)
        self.register_buffer("gain", scale / 255 / std_C, persistent=False)
        self.register_buffer("offset", -mean_C / std_C, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Converts uint8 images …×3×H×W to normalized float32 images of the same shape."""
        if self.bgr:
            images = images.flip(-3)
        floats = images.to(torch.float32, memory_format=torch.contiguous_format)
        return torch.addcmul(self.offset, floats, self.gain)
