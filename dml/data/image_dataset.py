"""PyTorch dataset that decodes and transforms the images of a subset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dml.data.batch_transforms import batch_transforms
from dml.data.decode import load_image
from dml.data.image_index import Subset


class ImageSource(Protocol):
    """Source of the pixels of an index: its files (`Decoder`) or a `PixelCache`."""

    def __getitem__(self, row: int) -> Tensor:
        """Returns the image of a row of the index, uint8 3×H×W."""
        ...

    def batch(self, rows: np.ndarray) -> Tensor | None:
        """Returns the images of several rows, B×3×H×W, or None if they cannot be read together."""
        ...


class Decoder:
    """Decodes images at every access."""

    def __init__(self, images: Sequence[Any] | np.ndarray, apply_orientation: bool = False) -> None:
        self.images, self.apply_orientation = images, apply_orientation

    def __getitem__(self, row: int) -> Tensor:
        return load_image(self.images[row], self.apply_orientation)

    def batch(self, rows: np.ndarray) -> Tensor | None:
        """Returns the images of several rows, B×3×H×W, if they are in memory, else None."""
        if not isinstance(self.images, np.ndarray):
            return None
        return torch.from_numpy(self.images[rows]).permute(0, 3, 1, 2)


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
        self.subset = subset
        self.transform = transform
        index = subset.index
        self.source = Decoder(index.images, index.apply_orientation) if source is None else source
        self.steps = batch_transforms(transform)

    def __len__(self) -> int:
        return len(self.subset)

    def __getitem__(self, key: int | tuple[int, int]) -> tuple[Tensor, int]:
        row, draw = key if isinstance(key, tuple) else (key, None)
        image = self.source[int(self.subset.rows[row])]
        with _preserve_global_generator():
            _seed(draw)
            return self.transform(image), int(self.subset.labels[row])

    def __getitems__(
        self, keys: Sequence[int | tuple[int, int]]
    ) -> list[tuple[Tensor, int]] | tuple[Tensor, Tensor]:
        """Returns a batch as tensors (images B×3×H×W, labels B) if possible, else as a list."""
        pairs = [key if isinstance(key, tuple) else (key, None) for key in keys]
        rows = np.array([row for row, _ in pairs])
        images = None if self.steps is None else self.source.batch(self.subset.rows[rows])
        if self.steps is None or images is None:
            return [self[key] for key in keys]
        drawn: list[list[Tensor]] = [[] for _ in self.steps]
        with _preserve_global_generator():
            for _, draw in pairs:
                _seed(draw)
                for step, numbers in zip(self.steps, drawn, strict=True):
                    numbers.append(step.draw())
        for step, numbers in zip(self.steps, drawn, strict=True):
            drawn_Bk = torch.stack(numbers).to(images.device, non_blocking=True)
            images = step.change(images, drawn_Bk)
        return images, torch.from_numpy(self.subset.labels[rows])


@contextmanager
def _preserve_global_generator() -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _seed(draw: int | None) -> None:
    if draw is not None:
        torch.default_generator.manual_seed(draw)  # torch.manual_seed would reseed CUDA as well
