"""Which images make up training step t: pure functions of seed and t.

Nothing here has a position to save. A continued run asks for the batch of its next step and gets
what the undisturbed run would have got; ranks of a distributed run take their slice of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import numpy as np

from dml.errors import nearest


class BatchSchedule(Protocol):
    """The batches of a training run.

    Attributes:
        steps_per_epoch: what counts as an epoch.
        batch_size: images in every batch.
    """

    steps_per_epoch: int
    batch_size: int

    def batch(self, step: int) -> np.ndarray:
        """Rows (batch_size integers) of the training view for `step` ≥ 0."""
        ...


class RandomBatches:
    """Every image once an epoch in random order; an incomplete last batch is dropped.

    Args:
        labels: one label per image of the training view.
        batch_size: 1..number of images.
        seed: of the permutations.
    """

    def __init__(self, labels: np.ndarray, batch_size: int, seed: int) -> None:
        if not 1 <= batch_size <= len(labels):
            raise ValueError(f"batch_size {batch_size} is not within 1..{len(labels)} images")
        self.batch_size = batch_size
        self.steps_per_epoch = len(labels) // batch_size
        self._images = len(labels)
        self._seed = seed
        self._order = lru_cache(maxsize=2)(self._permutation)

    def batch(self, step: int) -> np.ndarray:
        """Rows of step `step`."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.batch_size
        return self._order(epoch)[start : start + self.batch_size]

    def _permutation(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self._seed, epoch]).permutation(self._images)


class ClassStreamBatches:
    """m images of each class, classes cut from a stream of permutations as in MLRC.

    The stream is one random order of all classes after the other, so that a batch may hold a class
    twice where two orders meet. A class with fewer than m images is drawn with replacement.

    Args:
        labels: one label 0..C−1 per image of the training view.
        batch_size: a multiple of `images_per_class`.
        images_per_class: m ≥ 1.
        seed: of all draws.
        steps_per_epoch: what counts as an epoch; default: as many images as the view holds.
    """

    def __init__(
        self,
        labels: np.ndarray,
        batch_size: int,
        images_per_class: int,
        seed: int,
        steps_per_epoch: int | None = None,
    ) -> None:
        if images_per_class < 1 or batch_size < 1 or batch_size % images_per_class:
            raise ValueError(
                f"batch_size {batch_size} is no multiple of {images_per_class} images per class"
            )
        self.batch_size = batch_size
        self.steps_per_epoch = steps_per_epoch or max(1, len(labels) // batch_size)
        self._per_class = images_per_class
        self._classes_per_batch = batch_size // images_per_class
        order = np.argsort(labels, kind="stable")
        self._rows_of = np.split(order, np.cumsum(np.bincount(labels))[:-1])
        self._seed = seed
        self._order = lru_cache(maxsize=4)(self._permutation)

    def batch(self, step: int) -> np.ndarray:
        """Rows of step `step`, class by class."""
        first = step * self._classes_per_batch
        rng = np.random.default_rng([self._seed, 1, step])
        chosen = []
        for position in range(first, first + self._classes_per_batch):
            turn, place = divmod(position, len(self._rows_of))
            rows = self._rows_of[self._order(turn)[place]]
            replace = len(rows) < self._per_class
            chosen.append(rng.choice(rows, self._per_class, replace=replace))
        return np.concatenate(chosen)

    def _permutation(self, turn: int) -> np.ndarray:
        return np.random.default_rng([self._seed, 0, turn]).permutation(len(self._rows_of))


SAMPLERS = ("random", "class_stream")


def build_schedule(
    sampler: str,
    labels: np.ndarray,
    *,
    batch_size: int,
    images_per_class: int | None,
    seed: int,
    steps_per_epoch: int | None = None,
) -> BatchSchedule:
    """The schedule named `sampler` over a view's labels.

    Raises:
        ValueError: unknown name, or sizes that do not fit each other.
    """
    if sampler == "random":
        return RandomBatches(labels, batch_size, seed)
    if sampler == "class_stream":
        if images_per_class is None:
            raise ValueError("images_per_class: sampler 'class_stream' needs a number")
        return ClassStreamBatches(labels, batch_size, images_per_class, seed, steps_per_epoch)
    raise ValueError(f"sampler: no '{sampler}'{nearest(sampler, SAMPLERS)}; valid are {SAMPLERS}")


def draws(seed: int, step: int, count: int) -> list[int]:
    """`count` independent 63-bit seeds for the augmentations of one step."""
    state = np.random.SeedSequence([seed, 2, step]).generate_state(count, np.uint64)
    return [int(value >> 1) for value in state]
