"""What every dataset is: an index of images with labels and roles, and subsets of it.

Readers (`digits.py`, `cub.py`, …) only list what is there; one `ImageDataset` decodes and
transforms it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from dml.core.errors import UserError
from dml.data.batch_transforms import batch_transforms
from dml.data.decode import load_image
from dml.data.fingerprint import fingerprint

ROLES = ("train", "test", "query", "gallery")


@dataclass(frozen=True)
class ImageIndex:
    """All images of a dataset, undecoded.

    Attributes:
        name: id of the dataset.
        images: N paths, or a uint8 array N×H×W×3 (RGB) for data that fits in memory.
        labels: N integers 0..C−1, re-indexed in class order over the whole dataset.
        roles: N strings out of `train`, `test`, `query`, `gallery`.
        recall_at: the K of Recall@K that the literature reports on this dataset.
        stand_in: True for small data that stands in for a benchmark; reports are marked with it.
        own_split: True where a user drew the split, which no protocol may redraw then.
        root: the folder that the dataset stands in; another machine may hold it elsewhere.
    """

    name: str
    images: Sequence[Path] | np.ndarray
    labels: np.ndarray
    roles: np.ndarray
    recall_at: tuple[int, ...] = (1, 2, 4, 8)
    stand_in: bool = False
    own_split: bool = False
    root: Path | None = None

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.labels) == len(self.roles):
            raise ValueError(
                f"images, labels and roles differ in length: "
                f"{len(self.images)}, {len(self.labels)}, {len(self.roles)}"
            )
        unknown = set(np.unique(self.roles)) - set(ROLES)
        if unknown:
            raise ValueError(f"roles: unknown {sorted(unknown)}; valid are {ROLES}")

    def subset(self, *roles: str) -> Subset:
        """The images of the given roles, in index order."""
        return Subset(self, np.flatnonzero(np.isin(self.roles, roles)))

    def fingerprint(self) -> str:
        """16 hex digits that depend on all that decides a result, and not on where it stands."""
        return fingerprint(self.name, self.images, self.labels, self.roles, self.root)


@dataclass(frozen=True)
class Subset:
    """Some rows of an index, with labels made contiguous: what a model is trained or tested on.

    Attributes:
        index: the dataset.
        rows: n row numbers of the index.
        labels: n integers 0..num_classes−1, in the class order of the index.
        classes: the index's class of each of these labels.
    """

    index: ImageIndex
    rows: np.ndarray
    labels: np.ndarray = field(init=False)
    classes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        classes, labels = np.unique(self.index.labels[self.rows], return_inverse=True)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_classes(self) -> int:
        """Number of classes in the subset."""
        return len(self.classes)

    def of_classes(self, labels: Sequence[int] | np.ndarray) -> Subset:
        """The part of the subset whose (contiguous) labels are among `labels`."""
        return Subset(self.index, self.rows[np.isin(self.labels, np.asarray(labels))])


class ImageSource(Protocol):
    """Where the pixels of an index come from: its files (`Decoder`) or a `PixelCache`."""

    def __getitem__(self, row: int) -> Tensor:
        """The image of that row of the index, uint8 3×H×W."""
        ...

    def batch(self, rows: np.ndarray) -> Tensor | None:
        """Images B×3×H×W, or None where they cannot be had at once."""
        ...


class Decoder:
    """Decodes images whenever they are asked for."""

    def __init__(self, images: Sequence[Path] | np.ndarray) -> None:
        self.images = images

    def __getitem__(self, row: int) -> Tensor:
        return load_image(self.images[row])

    def batch(self, rows: np.ndarray) -> Tensor | None:
        """At once only what is in memory."""
        if not isinstance(self.images, np.ndarray):
            return None
        return torch.from_numpy(self.images[rows]).permute(0, 3, 1, 2)


class ImageDataset(Dataset[tuple[Tensor, int]]):
    """Decodes and transforms the images of a subset.

    An item is asked for as `row` or as `(row, draw)`. All randomness of the transform comes from
    `draw`, so that an augmented image depends neither on the worker that made it nor on the images
    made before it: a continued run sees what the undisturbed one would have seen.

    Args:
        subset: the images and their labels.
        transform: from uint8 3×H×W to uint8 3×h×w.
        source: where pixels come from; default: decoded from the index's own files.
    """

    def __init__(
        self,
        subset: Subset,
        transform: Callable[[Tensor], Tensor],
        source: ImageSource | None = None,
    ) -> None:
        self.subset = subset
        self.transform = transform
        self.source = Decoder(subset.index.images) if source is None else source
        self.steps = batch_transforms(transform)

    def __len__(self) -> int:
        return len(self.subset)

    def __getitem__(self, key: int | tuple[int, int]) -> tuple[Tensor, int]:
        row, draw = key if isinstance(key, tuple) else (key, None)
        image = self._loaded(int(self.subset.rows[row]))
        with _global_generator_kept():
            _seed(draw)
            return self.transform(image), int(self.subset.labels[row])

    def _loaded(self, row: int) -> Tensor:
        try:
            return self.source[row]
        except UserError as error:  # it was there, and whole, when the index was made
            index = self.subset.index
            raise UserError(
                f"{error} (class {index.labels[row]} of {index.name}); put the file back, and type "
                f"the same command again: what was saved before is intact"
            ) from error

    def __getitems__(
        self, keys: Sequence[int | tuple[int, int]]
    ) -> list[tuple[Tensor, int]] | tuple[Tensor, Tensor]:
        """The images of a batch: together (B×3×H×W, B) where that is possible, else one by one."""
        pairs = [key if isinstance(key, tuple) else (key, None) for key in keys]
        rows = np.array([row for row, _ in pairs])
        images = None if self.steps is None else self.source.batch(self.subset.rows[rows])
        if self.steps is None or images is None:
            return [self[key] for key in keys]
        drawn: list[list[Tensor]] = [[] for _ in self.steps]
        with _global_generator_kept():
            for _, draw in pairs:
                _seed(draw)
                for step, numbers in zip(self.steps, drawn, strict=True):
                    numbers.append(step.draw())
        for step, numbers in zip(self.steps, drawn, strict=True):
            images = step.change(images, torch.stack(numbers).to(images.device))
        return images, torch.from_numpy(self.subset.labels[rows])


@contextmanager
def _global_generator_kept() -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _seed(draw: int | None) -> None:
    if draw is not None:
        torch.default_generator.manual_seed(draw)  # torch.manual_seed would reseed CUDA as well
