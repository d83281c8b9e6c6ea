"""Batch schedules: the images of training step t as pure functions of seed and t.

A schedule has `batch_size`, `steps_per_epoch` and `batch(step)`: batch_size rows of the training
subset for step ≥ 0.
Schedules have no state to save. A resumed run gets the same batches as an uninterrupted run; each
rank of a distributed run takes its slice of a batch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dml.data.custom_sampler import CustomBatches


class RandomBatches:
    """Every image once per pass in random order; an incomplete last batch is dropped.

    Args:
        labels: one label per image of the training subset.
        batch_size: 1..number of images.
        seed: seed of the permutations.
        steps_per_epoch: steps of an epoch; default: one pass.
    """

    def __init__(
        self, labels: np.ndarray, batch_size: int, seed: int, steps_per_epoch: int | None = None
    ) -> None:
        if not 1 <= batch_size <= len(labels):
            raise ValueError(
                f"batch_size: {batch_size} does not fit {len(labels)} training images, each of "
                f"which is used once a pass; set 1 to {len(labels)}"
            )
        self.batch_size = batch_size
        self._steps_per_pass = len(labels) // batch_size
        self.steps_per_epoch = steps_per_epoch or self._steps_per_pass
        self._images = len(labels)
        self._seed = seed
        self._order = lru_cache(maxsize=2)(self._permutation)

    def batch(self, step: int) -> np.ndarray:
        """Rows of step `step`."""
        turn, position = divmod(step, self._steps_per_pass)
        start = position * self.batch_size
        return self._order(turn)[start : start + self.batch_size]

    def _permutation(self, turn: int) -> np.ndarray:
        return np.random.default_rng([self._seed, turn]).permutation(self._images)


class _ClassBatches:
    """Batches of m images per class, with classes from random permutations.

    Args:
        labels: one label 0..C−1 per image of the training subset.
        batch_size: a multiple of `images_per_class`.
        images_per_class: m ≥ 1.
        seed: seed of all draws.
        steps_per_epoch: steps of an epoch; default: images // `batch_size`, at least 1.
    """

    def __init__(
        self,
        labels: np.ndarray,
        batch_size: int,
        images_per_class: int,
        seed: int,
        steps_per_epoch: int | None = None,
    ) -> None:
        self._classes_per_batch, remainder = divmod(batch_size, images_per_class)
        if remainder:
            raise ValueError(f"batch_size: {batch_size} is no multiple of images_per_class")
        self.batch_size, self._per_class, self._seed = batch_size, images_per_class, seed
        self.steps_per_epoch = steps_per_epoch or max(1, len(labels) // batch_size)
        self._rows_of = _rows_by_class(labels)
        self._order = lru_cache(maxsize=4)(self._permutation)

    def _permutation(self, turn: int) -> np.ndarray:
        return np.random.default_rng([self._seed, 0, turn]).permutation(len(self._rows_of))


class ClassStreamBatches(_ClassBatches):
    """Batches of m images per class, with classes from a stream of permutations as in MLRC.

    The stream concatenates random permutations of all classes, so that a batch may contain a class
    twice at a boundary. A class with fewer than m images is drawn with replacement.
    """

    def batch(self, step: int) -> np.ndarray:
        """Rows of step `step`, class by class."""
        first = step * self._classes_per_batch
        positions = range(first, first + self._classes_per_batch)
        rows_of_classes = []
        for position in positions:
            turn, index = divmod(position, len(self._rows_of))
            rows_of_classes.append(self._rows_of[self._order(turn)[index]])
        rng, m = np.random.default_rng([self._seed, 1, step]), self._per_class
        if m == 1:  # as `choice` draws them, in a tenth of the time
            drawn = rng.integers([len(rows) for rows in rows_of_classes])
            pairs = zip(rows_of_classes, drawn, strict=True)
            return np.array([rows[number] for rows, number in pairs])
        parts = [rng.choice(rows, m, replace=len(rows) < m) for rows in rows_of_classes]
        return np.concatenate(parts)


class BalancedBatches(_ClassBatches):
    """Batches of P different classes × m images (Metrix on SOP and In-Shop: 20 × 5).

    Classes are taken from permutations without replacement; fewer than P remaining classes are
    dropped. The images of a class are taken in the same way; a class with fewer than m images is
    drawn with replacement.

    Raises:
        ValueError: there are fewer than P classes.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._steps_per_turn = len(self._rows_of) // self._classes_per_batch
        if not self._steps_per_turn:
            raise ValueError(
                f"batch_size: {self.batch_size} with {self._per_class} images per class asks for "
                f"{self._classes_per_batch} different classes; there are {len(self._rows_of)}, "
                f"enough for {len(self._rows_of) * self._per_class}"
            )

    def batch(self, step: int) -> np.ndarray:
        """Rows of step `step`, class by class."""
        turn, position = divmod(step, self._steps_per_turn)
        start = position * self._classes_per_batch
        classes = self._order(turn)[start : start + self._classes_per_batch]
        return np.concatenate([self._images(int(label), turn) for label in classes])

    def _images(self, label: int, turn: int) -> np.ndarray:
        rows, m = self._rows_of[label], self._per_class
        draws = len(rows) // m  # disjoint draws of m images before the class is shuffled again
        if not draws:
            return np.random.default_rng([self._seed, 1, label, turn]).choice(rows, m)
        shuffle, draw = divmod(turn, draws)
        shuffled = np.random.default_rng([self._seed, 2, label, shuffle]).permutation(rows)
        return shuffled[draw * m : (draw + 1) * m]


class CategoryBatches(_ClassBatches):
    """Batches of c categories × P classes of each × m images, whose negatives are similar.

    The categories of a batch differ, and are drawn with probabilities proportional to their numbers
    of classes; classes and images are drawn anew for each batch, without replacement. Of a category
    with fewer than P classes all are taken, and some again; so are the images of a class with fewer
    than m. This is `CategoryBalanceSampler` of OML (`resample_labels`, `weight_categories`); two
    categories with half a batch of each are FastAP's (Cakir et al., 2019), section 4.3.

    Args:
        labels: one label 0..C−1 per image of the training subset.
        batch_size: a multiple of `categories_per_batch` × `images_per_class`.
        images_per_class: m ≥ 1.
        seed: seed of all draws.
        steps_per_epoch: steps of an epoch; default: images // `batch_size`, at least 1.
        categories: one category 0..K−1 per class.
        categories_per_batch: c, 1..K.

    Raises:
        ValueError: there are fewer than c categories.
    """

    def __init__(
        self,
        labels: np.ndarray,
        batch_size: int,
        images_per_class: int,
        seed: int,
        steps_per_epoch: int | None = None,
        *,
        categories: np.ndarray,
        categories_per_batch: int,
    ) -> None:
        super().__init__(labels, batch_size, images_per_class, seed, steps_per_epoch)
        self._classes_of = _rows_by_class(categories)
        self._categories_per_batch = categories_per_batch
        self._per_category, remainder = divmod(self._classes_per_batch, categories_per_batch)
        if remainder:
            raise ValueError(
                f"batch_size: {batch_size} is no multiple of {categories_per_batch} categories x "
                f"{images_per_class} images per class"
            )
        if categories_per_batch > len(self._classes_of):
            raise ValueError(
                f"categories_per_batch: {categories_per_batch} different categories in a batch; "
                f"the training images have {len(self._classes_of)}"
            )
        self._weights = np.bincount(categories) / len(categories)

    def batch(self, step: int) -> np.ndarray:
        """Rows of step `step`, category by category and class by class."""
        rng = np.random.default_rng([self._seed, 6, step])
        count = len(self._classes_of)
        drawn = rng.choice(count, self._categories_per_batch, replace=False, p=self._weights)
        parts = []
        for category in drawn:
            for label in _draw(rng, self._classes_of[category], self._per_category):
                parts.append(_draw(rng, self._rows_of[label], self._per_class))
        return np.concatenate(parts)


def _draw(rng: np.random.Generator, items: np.ndarray, count: int) -> np.ndarray:
    """Returns different random items; if there are too few, each once and then some again."""
    if count <= len(items):
        return rng.choice(items, count, replace=False)
    again = rng.choice(items, count - len(items))
    return np.concatenate([rng.permutation(items), again])


BatchSchedule = (
    RandomBatches | ClassStreamBatches | BalancedBatches | CategoryBatches | CustomBatches
)


def build_schedule(
    sampler: str,
    labels: np.ndarray,
    *,
    batch_size: int,
    images_per_class: int | None,
    seed: int,
    steps_per_epoch: int | None = None,
    categories: np.ndarray | None = None,
    categories_per_batch: int | None = None,
) -> BatchSchedule:
    """Returns the schedule of the option `data.sampler` for the labels of a subset.

    Args:
        sampler: a value of the option.
        labels: one label 0..C−1 per image.
        batch_size, images_per_class, seed, steps_per_epoch: see the classes of this module.
        categories, categories_per_batch: of `category`, see `CategoryBatches`.

    Raises:
        ValueError: the sizes are incompatible; the message begins with the name of the argument,
            which is also the name of an option in `data`.
    """
    if sampler == "random":
        return RandomBatches(labels, batch_size, seed, steps_per_epoch)
    assert images_per_class is not None  # the check of the config
    if sampler == "class_stream":
        return ClassStreamBatches(labels, batch_size, images_per_class, seed, steps_per_epoch)
    if sampler == "category":
        assert categories is not None
        assert categories_per_batch is not None  # the check of the config
        return CategoryBatches(
            labels,
            batch_size,
            images_per_class,
            seed,
            steps_per_epoch,
            categories=categories,
            categories_per_batch=categories_per_batch,
        )
    return BalancedBatches(labels, batch_size, images_per_class, seed, steps_per_epoch)


def count_without_pairs(schedule: BatchSchedule, labels: np.ndarray, steps: int) -> int:
    """Returns how many of the first batches have no pair of one class, or none of two classes."""
    count = 0
    for step in range(steps):
        batch = labels[schedule.batch(step)]
        classes = len(np.unique(batch))
        count += classes in (1, len(batch))
    return count


def augmentation_seeds(seed: int, step: int, count: int) -> list[int]:
    """Returns `count` independent 63-bit seeds for the augmentations of one step."""
    state = np.random.SeedSequence([seed, 2, step]).generate_state(count, np.uint64)
    return [int(value) >> 1 for value in state]


def class_pool(
    labels: np.ndarray, images_per_class: int, seed: int, number: int
) -> list[tuple[int, int]]:
    """Returns random rows of every class, in the order of the classes, with augmentation seeds.

    A class with fewer images is drawn with replacement; the copies differ by augmentation.

    Args:
        labels: one label 0..C−1 per image of the training subset.
        images_per_class: at least 1.
        seed: seed of all draws.
        number: number of the pool; the same seed and number always give the same pool.

    Returns:
        C · images_per_class pairs (row, seed of the augmentation).
    """
    rng = np.random.default_rng([seed, 3, number])
    rows: list[int] = []
    for images in _rows_by_class(labels):
        too_few = len(images) < images_per_class
        rows += rng.choice(images, images_per_class, replace=too_few).tolist()
    state = np.random.SeedSequence([seed, 4, number]).generate_state(len(rows), np.uint64)
    return [(row, int(value) >> 1) for row, value in zip(rows, state, strict=True)]


def _rows_by_class(labels: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])
