"""Images of a reader of one's own: checked once, and taken in the forms that are usual in PyTorch.

Training takes paths, images of Pillow and uint8 pixels H×W×3. Floating-point numbers from 0 to 1,
numbers of 16 bits, tensors and channels in front are converted; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from dml.core.errors import UserError
from dml.data.image_index import ImageIndex

CHANNELS = (1, 2, 3, 4)
TWELVE_BITS = 1 << 12
ADVICE = "give uint8 pixels from 0 to 255, floating-point numbers from 0 to 1, or images of Pillow"


def check_reader(index: ImageIndex) -> ImageIndex:
    """Returns the index with images in a form that training takes, and a note if they had another.

    Raises:
        UserError: the first image has no such form.
    """
    images = index.images
    if not len(images) or index.features is not None:
        return index
    if isinstance(images, Tensor):
        images = images.numpy()
    if isinstance(images, np.ndarray) and images.dtype != object:
        return _convert_array(index, images)
    first = images[0]
    if isinstance(first, Path | Image.Image):
        return index
    if isinstance(first, str):
        return replace(index, images=[Path(images[row]) for row in range(len(images))])
    return _convert_items(index, first)


def _convert_array(index: ImageIndex, images: np.ndarray) -> ImageIndex:
    """Returns the index with an array of uint8 pixels N×H×W×3, or of other numbers of channels."""
    if images.ndim not in (3, 4):
        raise UserError(
            f"data.reader: images have the shape {images.shape}; give NxHxWx3, or a sequence of "
            f"images"
        )
    changed = _to_bytes(images, "images")
    if images.ndim == 4 and _has_channels_in_front(images.shape[1:]):
        changed = changed.transpose(0, 2, 3, 1)
    if changed is images is index.images:
        return index
    return _with_note(replace(index, images=changed), images.dtype, images.shape[1:])


def _convert_items(index: ImageIndex, first: Any) -> ImageIndex:
    """Returns the index with items that are converted at every access, if the first needs it."""
    pixels = to_pixels(first)
    if pixels is first:
        return index
    images: Any = index.images
    converted = replace(index, images=ConvertedImages(images))
    return _with_note(converted, first.dtype, tuple(first.shape))


def _with_note(index: ImageIndex, dtype: Any, shape: Sequence[int]) -> ImageIndex:
    size = "x".join(map(str, shape))
    note = f"data.reader: images of type {dtype}, {size}, are converted to uint8, HxWxchannels"
    return replace(index, notes=(*index.notes, note))


class ConvertedImages(Sequence[Any]):
    """Images of a reader, as `to_pixels` converts them.

    Args:
        images: any object with a length whose items are images.
    """

    def __init__(self, images: Sequence[Any]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: Any) -> Any:
        return to_pixels(self.images[row])


def to_pixels(item: Any) -> Any:
    """Returns an item of a reader as it is, if training takes it, or as uint8 pixels H×W×channels.

    Raises:
        UserError: it is no image, or has another range of numbers.
    """
    if isinstance(item, Path | Image.Image):
        return item
    pixels = item.numpy() if isinstance(item, Tensor) else item
    if not isinstance(pixels, np.ndarray):
        raise UserError(f"data.reader: images[0] is {_describe(item)}; give the image alone")
    changed = _to_bytes(pixels, "images[0]")
    if changed.ndim == 3 and _has_channels_in_front(changed.shape):
        changed = changed.transpose(1, 2, 0)
    if changed.ndim == 3 and changed.shape[2] == 1:
        changed = changed[:, :, 0]
    return changed


def _describe(item: Any) -> str:
    """Returns `a tuple of Image and int` for an item of a dataset of PyTorch."""
    name = type(item).__name__
    if not isinstance(item, tuple | list):
        return f"of type {name}"
    parts = " and ".join(type(part).__name__ for part in item[:3])
    return f"a {name} of {parts}"


def _has_channels_in_front(shape: Sequence[int]) -> bool:
    return shape[0] in CHANNELS and shape[-1] not in CHANNELS


def _to_bytes(numbers: np.ndarray, name: str) -> np.ndarray:
    """Returns uint8 numbers: as they are, of 16 bits the upper 8, from 0 to 1 their 255-fold.

    Raises:
        UserError: another type or range.
    """
    if numbers.dtype == np.uint8:
        return numbers
    low, high = numbers.min(), numbers.max()
    if numbers.dtype == np.uint16 and (high == 0 or high >= TWELVE_BITS):
        return (numbers >> 8).astype(np.uint8)
    if numbers.dtype.kind == "f" and low >= 0 and high <= 1:  # False for NaN
        return np.rint(numbers * np.float32(255)).astype(np.uint8)
    raise UserError(f"data.reader: {name}: {numbers.dtype} from {low:g} to {high:g}; {ADVICE}")
