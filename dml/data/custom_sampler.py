"""Batches by a sampler of PyTorch, of pytorch-metric-learning, or of the user."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from textwrap import shorten
from typing import Any

import numpy as np

from dml.core.errors import UserError, describe_failure
from dml.data.generators import seeded

OPTION = "data.sampler"
MAX_PASSES = 100  # over the training images, in an iteration whose length is not known
LEAST_ROWS = 1_000_000  # that such an iteration may have in any case


class CustomBatches:
    """The batches of a sampler, which is built anew for each epoch.

    All generators are seeded from (seed, epoch) meanwhile, and the sampler gets a seed of its own:
    a continued run has the batches of an uninterrupted one. An epoch is one iteration of the
    sampler, or `steps_per_epoch` batches: further iterations follow, or its end is not used.

    Args:
        build: returns a sampler for a seed: an iterable of rows, which are cut into batches, or of
            batches of rows. `set_epoch` is called with the epoch if it has it.
        images: number of training images.
        batch_size: of each batch. A last batch with fewer rows is dropped.
        seed: seed of all epochs.
        steps_per_epoch: None: the number of batches of the first iteration.

    Raises:
        UserError: the sampler fails, or yields no rows, wrong rows or batches of another size.
    """

    def __init__(
        self,
        build: Callable[[int], Iterable[Any]],
        images: int,
        batch_size: int,
        seed: int,
        steps_per_epoch: int | None = None,
    ) -> None:
        self.batch_size = batch_size
        self._build, self._images, self._seed = build, images, seed
        self._epoch = lru_cache(maxsize=2)(self._draw_epoch)
        self.steps_per_epoch = steps_per_epoch or self._count_batches()

    def batch(self, step: int) -> np.ndarray:
        """Rows of step `step`."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return self._epoch(epoch)[position]

    def differs(self) -> bool:
        """Returns whether two iterations of the first epoch with equal seeds differ."""
        return not np.array_equal(self._draw_epoch(0), self._draw_epoch(0))

    def _count_batches(self) -> int:
        """Returns the number of batches of the first iteration."""
        limit = max(MAX_PASSES * self._images, LEAST_ROWS) // self.batch_size
        count = len(self._iterate(0, 0, limit + 1))
        if count > limit:
            raise UserError(
                f"{OPTION}: it yields more than {limit} batches; set protocol.steps_per_epoch"
            )
        return count

    def _draw_epoch(self, epoch: int) -> np.ndarray:
        """Returns the rows of an epoch, steps × batch size."""
        batches: list[np.ndarray] = []
        iteration = 0
        while len(batches) < self.steps_per_epoch:
            batches += self._iterate(epoch, iteration, self.steps_per_epoch - len(batches))
            iteration += 1
        return np.stack(batches)

    def _iterate(self, epoch: int, iteration: int, limit: int) -> list[np.ndarray]:
        """Returns the first batches of an iteration; at least one."""
        seeds = np.random.SeedSequence([self._seed, 5, epoch, iteration]).generate_state(2)
        with seeded(int(seeds[0])):
            try:
                sampler: Any = self._build(int(seeds[1]))
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(epoch)
                batches = list(islice(self._split(sampler), limit))
            except UserError:
                raise
            except Exception as error:  # of any class: it may be the user's
                raise UserError(f"{OPTION}: it fails: {describe_failure(error)}") from error
        if not batches:
            raise UserError(
                f"{OPTION}: it yields fewer than {self.batch_size} rows; use a smaller "
                f"data.batch_size"
            )
        return batches

    def _split(self, sampler: Iterable[Any]) -> Iterator[np.ndarray]:
        """Yields the batches of a sampler of rows or of batches."""
        rows: list[int] = []
        for item in sampler:
            if np.ndim(item) == 0:
                rows.append(_read_row(item))
                if len(rows) == self.batch_size:
                    yield self._check(rows)
                    rows = []
                continue
            if rows:  # a batch with fewer rows is no last one
                self._refuse_size(len(rows))
            rows = [_read_row(row) for row in item]
            if len(rows) > self.batch_size:
                self._refuse_size(len(rows))
            if len(rows) == self.batch_size:
                yield self._check(rows)
                rows = []

    def _refuse_size(self, size: int) -> None:
        raise UserError(
            f"{OPTION}: it yields a batch of {size} images; set data.batch_size={size}, and let "
            f"all batches have one size"
        )

    def _check(self, rows: list[int]) -> np.ndarray:
        """Returns the rows of a batch; raises UserError for those of no image."""
        array = np.array(rows)
        wrong = array[(array < 0) | (array >= self._images)]
        if len(wrong):
            raise UserError(
                f"{OPTION}: it yields row {wrong[0]}; the training images are rows 0 to "
                f"{self._images - 1}"
            )
        return array


def _read_row(row: Any) -> int:
    """Returns a row as an integer; raises UserError for another object."""
    try:
        if np.asarray(row).dtype.kind != "b":
            return operator.index(row)
    except (TypeError, ValueError, RuntimeError):  # torch and NumPy differ
        pass
    raise UserError(f"{OPTION}: it yields {shorten(repr(row), 80)}, which is no row: an integer")
