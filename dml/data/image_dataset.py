"""PyTorch dataset that decodes and transforms the images of a subset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.data.decode import BACKGROUND, load_image, release
from dml.data.image_index import ImageIndex, Subset
from dml.data.transforms import BatchTransform


class ImageSource:
    """Source of the pixels of an index: decodes images at every access."""

    def __init__(
        self,
        images: Sequence[Any] | np.ndarray,
        apply_orientation: bool = False,
        background: str = BACKGROUND,
        max_pixels: int = MAX_IMAGE_PIXELS,
    ) -> None:
        self.images, self.apply_orientation = images, apply_orientation
        self.background, self.max_pixels = background, max_pixels

    @classmethod
    def of(cls, index: ImageIndex) -> ImageSource:
        """Returns the source of an index."""
        return cls(index.images, index.apply_orientation, index.background, index.max_pixels)

    def __getitem__(self, row: int) -> Tensor:
        """Returns the image of a row of the index, uint8 3×H×W."""
        options = self.apply_orientation, self.background, self.max_pixels
        return load_image(self.images[row], *options)


class ImageDataset(Dataset[tuple[Tensor, int]]):
    """Decodes and transforms the images of a subset.

    Keys are `row` or `(row, draw)`. All randomness of the transform comes from the seed `draw`, so
    that an augmented image depends neither on the worker nor on earlier images: a resumed run gets
    the same images as an uninterrupted one.

    Args:
        subset: the images and their labels.
        transform: from uint8 3×H×W to uint8 3×h×w.
        source: source of the pixels; default: the images of the index, decoded at every access.
    """

    def __init__(
        self,
        subset: Subset,
        transform: Callable[[Tensor], Tensor],
        source: ImageSource | None = None,
    ) -> None:
        self.subset, self.transform, index = subset, transform, subset.index
        self.source = source or ImageSource.of(index)
        steps: list[Any] = [transform]
        if isinstance(transform, nn.Sequential):
            steps = list(transform)
        # Whole batches of images in memory are transformed at once where all steps allow it.
        self.steps: list[Any] | None = None
        in_memory = isinstance(index.images, np.ndarray)
        if in_memory and all(isinstance(step, BatchTransform) for step in steps):
            self.steps = steps

    def __len__(self) -> int:
        return len(self.subset)

    def __getitem__(self, key: int | tuple[int, int]) -> tuple[Tensor, int]:
        row, draw = key if isinstance(key, tuple) else (key, None)
        image = self.source[int(self.subset.rows[row])]
        with torch.random.fork_rng(devices=[]):
            _seed(draw)
            return release(self.transform(image)), int(self.subset.labels[row])

    def __getitems__(
        self, keys: Sequence[int | tuple[int, int]]
    ) -> list[tuple[Tensor, int]] | tuple[Tensor, Tensor]:
        """Returns a batch as tensors (images B×3×H×W, labels B) if possible, else as a list."""
        if self.steps is None:
            return [self[key] for key in keys]
        rows = []
        drawn: list[list[Tensor]] = [[] for _ in self.steps]
        with torch.random.fork_rng(devices=[]):
            for key in keys:
                row, draw = key if isinstance(key, tuple) else (key, None)
                rows.append(row)
                _seed(draw)
                for step, numbers in zip(self.steps, drawn, strict=True):
                    numbers.append(step.draw())
        pixels_BHWC = np.asarray(self.subset.index.images)[self.subset.rows[rows]]
        images = torch.from_numpy(pixels_BHWC).permute(0, 3, 1, 2)
        for step, numbers in zip(self.steps, drawn, strict=True):
            images = step.change(images, torch.stack(numbers))
        return images, torch.from_numpy(self.subset.labels[rows])


def _seed(draw: int | None) -> None:
    if draw is not None:
        torch.default_generator.manual_seed(draw)  # torch.manual_seed would reseed CUDA as well
