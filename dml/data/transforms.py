"""From a decoded image to what a network sees.

Crops and flips work on uint8 images in the loader; `ToInput` turns whole batches into floats on the
device, which moves a quarter of the bytes between processes and to the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from dml.errors import nearest

AUGMENTATIONS = ("random_resized_crop", "random_affine", "random_crop", "none")


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
    """Random crop and flip of a uint8 image 3×H×W.

    Args:
        augmentation: `random_resized_crop` (the papers'), or for stand-ins of few pixels
            `random_crop` (a shift by at most `padding` whole pixels) and `random_affine` (rotation
            and slant by up to `degrees`, zoom by `scale`, shift by up to `padding` pixels), or
            `none`.
        size: side of the result in pixels; None keeps the image's own size.
        resize: length of the shorter side before the random crop (MLRC: 256); None: as decoded.
        scale, ratio: area and aspect ratio of the random crop.
        flip: mirror half of the images.
        padding: pixels, for `random_crop` and `random_affine`.
        degrees: for `random_affine`.
    """
    steps: list[nn.Module] = []
    if resize is not None:
        steps.append(v2.Resize(resize, antialias=True))
    if augmentation == "random_resized_crop":
        if size is None:
            raise ValueError("size: random_resized_crop needs a number of pixels")
        steps.append(
            v2.RandomResizedCrop(size, scale=list(scale), ratio=list(ratio), antialias=True)
        )
    elif augmentation == "random_crop":
        steps.append(Shift(padding))
    elif augmentation == "random_affine":
        steps.append(Affine(degrees, scale, padding))
    elif augmentation != "none":
        raise ValueError(
            f"augmentation: no '{augmentation}'{nearest(augmentation, AUGMENTATIONS)}; "
            f"valid are {AUGMENTATIONS}"
        )
    if augmentation != "random_resized_crop" and size is not None:
        steps.append(v2.Resize((size, size), antialias=True))
    if flip:
        steps.append(v2.RandomHorizontalFlip())
    return nn.Sequential(*steps)


def eval_transform(size: int | None, *, resize: int | None = None) -> nn.Module:
    """Shorter side to `resize` pixels, then the central `size`×`size`; None leaves that step out.

    Without `resize` the whole image is brought to `size`×`size`: that is for stand-ins whose images
    are smaller than the network's input.
    """
    if size is None:
        return nn.Sequential()
    if resize is None:
        return v2.Resize((size, size), antialias=True)
    return nn.Sequential(v2.Resize(resize, antialias=True), v2.CenterCrop(size))


class Shift(nn.Module):
    """Shifts an image by up to `padding` pixels each way; the border is filled with zeros."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, image: Tensor) -> Tensor:
        """Shifts one image 3×H×W."""
        if self.padding == 0:
            return image
        p = self.padding
        top, left = torch.randint(0, 2 * p + 1, (2,)).tolist()
        padded = nn.functional.pad(image, (p, p, p, p))
        return padded[:, top : top + image.shape[1], left : left + image.shape[2]]


class Affine(nn.Module):
    """Rotates, slants, zooms and shifts an image; the border is filled with zeros.

    Args:
        degrees: largest rotation, and largest slant.
        scale: smallest and largest zoom.
        padding: largest shift in pixels; not whole ones, unlike `Shift`.
    """

    def __init__(self, degrees: float, scale: Sequence[float], padding: int) -> None:
        super().__init__()
        self.degrees, self.scale, self.padding = degrees, tuple(scale), padding

    def forward(self, image: Tensor) -> Tensor:
        """Transforms one image 3×H×W."""
        rotation, slant, zoom, right, down = torch.rand(5).tolist()
        low, high = self.scale
        return v2.functional.affine(
            image,
            angle=self.degrees * (2 * rotation - 1),
            shear=[self.degrees * (2 * slant - 1), 0.0],
            scale=low + (high - low) * zoom,
            translate=[self.padding * (2 * right - 1), self.padding * (2 * down - 1)],
            interpolation=v2.InterpolationMode.BILINEAR,
        )


class ToInput(nn.Module):
    """Batches of uint8 RGB images to the floats a backbone was trained on.

    Args:
        mean, std: per channel, in the order the network sees the channels.
        channel_order: `rgb` or `bgr`.
        scale: value of a full channel before `mean` is taken off (1 or 255).
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
        if channel_order not in ("rgb", "bgr"):
            raise ValueError(f"channel_order: '{channel_order}' is neither 'rgb' nor 'bgr'")
        self.bgr = channel_order == "bgr"
        # (x · scale/255 − mean) / std as one multiplication and one addition
        std_C = torch.tensor(std).view(-1, 1, 1)
        mean_C = torch.tensor(mean).view(-1, 1, 1)
        self.register_buffer("gain", scale / 255 / std_C, persistent=False)
        self.register_buffer("offset", -mean_C / std_C, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """uint8 …×3×H×W to float32 of the same shape."""
        if self.bgr:
            images = images.flip(-3)
        return torch.addcmul(self.offset, images.float(), self.gain)
