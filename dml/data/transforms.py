"""Transforms from a decoded image to the input of a network.

Crops and flips work on uint8 images in the loader; `ToInput` converts whole batches to floats on
the device, so that only a quarter of the bytes is copied between processes and to the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

from dml.data.batch_transforms import Affine, BatchTransform, RandomFlip, Shift


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
) -> nn.Module:
    """Returns the augmentation of uint8 images 3×H×W for training.

    Args:
        augmentation: `random_resized_crop` (in the papers), or for small stand-in images
            `random_crop` (a shift by at most `padding` whole pixels) and `random_affine` (rotation
            and shear by up to `degrees`, scaling by `scale`, shift by up to `padding` pixels), or
            `none`.
        size: side of the result in pixels; None keeps the size of the image.
        resize: length of the shorter side before the random crop (MLRC: 256); None: as decoded.
        scale, ratio: ranges of relative area and aspect ratio of the random crop.
        flip: mirror each image with probability 0.5.
        padding: largest shift in pixels, for `random_crop` and `random_affine`.
        degrees: largest rotation and shear, for `random_affine`.
    """
    steps: list[nn.Module] = []
    if resize is not None:
        steps.append(ResizeShorter(resize))
    if augmentation == "random_resized_crop":
        if size is None:
            raise ValueError("size: random_resized_crop needs a number of pixels")
        steps.append(RandomResizedCrop(size, scale=list(scale), ratio=list(ratio)))
    elif augmentation == "random_crop":
        steps.append(Shift(padding))
    elif augmentation == "random_affine":
        steps.append(Affine(degrees, scale, padding))
    if augmentation != "random_resized_crop" and size is not None:
        steps.append(ResizeToSquare(size))
    if flip:
        steps.append(RandomFlip())
    return nn.Sequential(*steps)


def eval_transform(size: int | None, *, resize: int | None = None) -> nn.Module:
    """Returns the transform for evaluation: resize of the shorter side, then a central crop.

    Args:
        size: side of the crop in pixels; None leaves images unchanged.
        resize: length of the shorter side; None resizes the whole image to `size`×`size`, for
            stand-ins with images smaller than the network's input.
    """
    if size is None:
        return nn.Sequential()
    if resize is None:
        return ResizeToSquare(size)
    return nn.Sequential(ResizeShorter(resize), v2.CenterCrop(size))


def set_interpolation(transform: nn.Module, interpolation: str) -> nn.Module:
    """Sets the interpolation of all resizes in a transform (default: bilinear), and returns it.

    Args:
        transform: changed in place.
        interpolation: "bilinear" or "bicubic".
    """
    for step in transform.modules():
        if isinstance(step, ResizeShorter | ResizeToSquare | RandomResizedCrop):
            step.interpolation = InterpolationMode(interpolation)
    return transform


def resize_image(
    image: Tensor,
    size: Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
) -> Tensor:
    """Resizes an image 3×H×W by torchvision's antialiased interpolation.

    Args:
        image: uint8, any strides.
        size: height and width, or the shorter side alone.
        interpolation: bilinear or bicubic.
    """
    # Channels innermost, with unambiguous strides even for a batch of one: the fast path of the
    # interpolation, and the fastest layout for `collate`.
    image_HWC = image.permute(1, 2, 0).contiguous()
    image_1CHW = image_HWC[None].permute(0, 3, 1, 2)
    return F.resize(image_1CHW, list(size), interpolation, antialias=True)[0]


class ResizeShorter(nn.Module):
    """Resizes an image so that its shorter side has `side` pixels."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side, self.interpolation = side, InterpolationMode.BILINEAR

    def forward(self, image: Tensor) -> Tensor:
        """Resizes one image 3×H×W; returns an image of that size unchanged."""
        if min(image.shape[1:]) == self.side:
            return image
        return resize_image(image, [self.side], self.interpolation)


class ResizeToSquare(BatchTransform):
    """Resizes an image to `size`×`size`, ignoring its aspect ratio."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.interpolation = [size, size], InterpolationMode.BILINEAR

    def change(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Resizes all images; returns images of that size unchanged."""
        if list(images.shape[2:]) == self.size:
            return images
        return torch.stack([resize_image(image, self.size, self.interpolation) for image in images])


class RandomResizedCrop(v2.RandomResizedCrop):
    """torchvision's random crop with equal draws and pixels, twice as fast on single images."""

    def forward(self, image: Tensor) -> Tensor:
        """Crops and resizes one image 3×H×W."""
        box = self.make_params([image])
        top, left = box["top"], box["left"]
        region = image[:, top : top + box["height"], left : left + box["width"]]
        return resize_image(region, self.size, self.interpolation)


class Views(nn.Module):
    """An image as it is evaluated, and `count` augmentations of it, as one tensor.

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
