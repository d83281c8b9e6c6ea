"""All pairs of rows within a distance: exact, in memory that the number of pairs does not change.

A million rows have 5·10¹¹ pairs. Three steps, none of which drops a pair, leave few to compare:

1. `_Cells`: each row belongs to the cell of its nearest center, a center being a random row.
   From a row x in the cell of a, any row in the cell of b is at least
   (‖x − b‖² − ‖x − a‖²) / (2‖a − b‖) away, the distance from x to the plane between both cells.
   A row is compared with the cells alone for which this is at most the limit.
2. `_Projection`: the first of the principal components bound the distance from below. So many are
   used that few pairs pass.
3. Pairs that pass, by float32 products with a bound on their rounding, are compared in float64 by
   differences. Where all dimensions are in the products, pairs that are surely within the limit are
   counted without this comparison, unless they may be among the nearest.

Equal rows are compared once. Shapes: N rows, D dimensions, m components, C cells, P pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dml.core.progress import show_progress
from dml.core.torch_settings import fewer_threads
from dml.retrieval.exact.order import find_scale, squared_distances

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_PAIRS = 1_000_000
MOST_CELLS = 1024
CELL_ROWS = 64  # of an average cell, at least
ROWS = 1024  # that are read at once; a multiple of 8
TILE = 1536, 1024  # rows, and columns of a cell, that are compared at once: 6 MB of scores
SAMPLE = 1000  # rows that say how many components are used
FEW = 1e-4  # share of pairs that may pass the projection
FIRST_COMPONENTS = 16
FITTED_ROWS = 20_000  # by which the components are computed
UNIT = 2.0**-24  # unit roundoff of float32
ROUNDING64 = 1e-12  # relative error of float64 sums, generously


class NearPairs(NamedTuple):
    """Pairs of rows within a distance, the nearest first.

    Attributes:
        first, second: rows of the pairs (P each), first < second; ties are in their order.
        distances: Euclidean, computed in float64 (P).
        total: pairs within the distance, also those that are not kept.
    """

    first: Rows
    second: Rows
    distances: Floats
    total: int


def near_pairs(points: np.ndarray, limit: float, max_pairs: int = MOST_PAIRS) -> NearPairs:
    """Returns the pairs of rows whose Euclidean distance is at most a limit.

    Args:
        points: N×D floating-point numbers, in memory or on the disk, of which blocks are read.
        limit: at least 0.
        max_pairs: the nearest so many pairs are kept, all are counted.

    Raises:
        ValueError: the limit is negative or not finite, or embeddings are not finite.
    """
    if not (math.isfinite(limit) and limit >= 0):
        raise ValueError(f"limit: {limit} is not a number of at least 0")
    largest = find_largest(points)
    kept, copy_of = find_equal_rows(points)
    weights = np.bincount(copy_of, minlength=len(points))[kept]
    pairs = _PairHeap(points, kept, weights, limit, max_pairs)
    if len(kept) > 1 and limit > 0:
        _compare(points, kept, largest, pairs)
    equal = _pairs_of_equal_rows(copy_of, max_pairs)
    members = _members_of(copy_of, kept)
    others = _expand(pairs, members, max_pairs)
    first, second = np.concatenate([equal[0], others[0]]), np.concatenate([equal[1], others[1]])
    distances = np.concatenate([np.zeros(len(equal[0])), others[2]])
    order = np.lexsort((second, first, distances))[:max_pairs]
    equal_pairs = int((weights * (weights - 1) // 2).sum())
    return NearPairs(first[order], second[order], distances[order], equal_pairs + pairs.count)


def find_largest(points: np.ndarray) -> float:
    """Returns the largest absolute value.

    Raises:
        ValueError: values are NaN or infinite, or see `find_scale`.
    """
    largest = 0.0
    for start in range(0, len(points), ROWS):
        part = points[start : start + ROWS]
        if not np.isfinite(part).all():
            raise ValueError("values that are NaN or infinite; leave out these rows")
        largest = max(largest, float(np.abs(part).max()))
    find_scale(largest)
    return largest


def read_rows(points: np.ndarray, rows: Rows | slice) -> Tensor:
    """Returns rows in float64."""
    return torch.from_numpy(points[rows].astype(np.float64))


def find_equal_rows(points: np.ndarray) -> tuple[Rows, Rows]:
    """Returns the rows without those that equal an earlier one, and the first equal of each row.

    Rows are told apart by digests of their bytes; those of one digest are compared.
    """
    digests = np.empty(len(points), np.uint64)
    factors = np.random.default_rng(0).integers(1, 2**63, points.shape[1], dtype=np.uint64) | 1
    for start in range(0, len(points), ROWS):
        part = points[start : start + ROWS].astype(np.float64) + 0.0  # −0 equals 0
        digests[start : start + ROWS] = _mix(part.view(np.uint64)) @ factors
    order = np.argsort(digests, kind="stable")
    is_first = np.ones(len(points), bool)
    is_first[1:] = digests[order[1:]] != digests[order[:-1]]
    starts = np.flatnonzero(is_first)
    copy_of = np.empty(len(points), np.int64)
    sizes = np.diff(np.append(starts, len(points)))
    copy_of[order] = np.repeat(order[starts], sizes)
    others = np.flatnonzero(copy_of != np.arange(len(points)))
    for rows in np.array_split(others, max(1, len(others) // ROWS)):
        differs = (points[rows] != points[copy_of[rows]]).any(axis=1)
        copy_of[rows[differs]] = rows[differs]  # another row of this digest: it stands alone
    return np.flatnonzero(copy_of == np.arange(len(points))), copy_of


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns bits of which the lower ones depend on the upper ones (splitmix64's last step)."""
    mixed = (bits ^ (bits >> np.uint64(31))) * np.uint64(0x7FB5D329728EA185)
    return mixed ^ (mixed >> np.uint64(27))


def _pairs_of_equal_rows(copy_of: Rows, max_pairs: int) -> tuple[Rows, Rows]:
    """Returns the first pairs of equal rows, in their order, at most `max_pairs`."""
    order = np.argsort(copy_of, kind="stable")  # the rows of a group side by side, ascending
    _, starts, sizes = np.unique(copy_of[order], return_index=True, return_counts=True)
    ends = np.repeat(starts + sizes, sizes)
    later = np.empty(len(copy_of), np.int64)  # rows of its group after each row
    later[order] = ends - np.arange(len(order)) - 1
    position = np.empty(len(copy_of), np.int64)
    position[order] = np.arange(len(order))
    rows = np.flatnonzero(later)
    enough = int(np.searchsorted(np.cumsum(later[rows]), max_pairs)) + 1
    rows = rows[:enough]
    counts = later[rows]
    first = np.repeat(rows, counts)
    steps = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    second = order[np.repeat(position[rows] + 1, counts) + steps]
    return first[:max_pairs], second[:max_pairs]


def _members_of(copy_of: Rows, kept: Rows) -> list[Rows] | None:
    """Returns the equal rows of each kept row; None if no two are equal."""
    if len(kept) == len(copy_of):
        return None
    order = np.argsort(copy_of, kind="stable")
    sizes = np.bincount(copy_of, minlength=len(copy_of))[kept]
    return np.split(order, np.cumsum(sizes)[:-1])


class _PairHeap:
    """The nearest pairs so far; the limit falls with them, and all pairs are counted.

    Args:
        points: N×D.
        kept: rows of `points` that are compared.
        weights: rows that each of them stands for.
        limit: largest distance.
        max_pairs: number of pairs that are kept.
    """

    def __init__(
        self, points: np.ndarray, kept: Rows, weights: Rows, limit: float, max_pairs: int
    ) -> None:
        self._kept, self._weights, self._limit, self._max_pairs = kept, weights, limit, max_pairs
        dtype = np.float64 if points.itemsize > 4 else np.float32
        self._points = torch.from_numpy(points.astype(dtype, copy=not points.flags.writeable))
        self._parts: list[tuple[Rows, Rows, Floats]] = []
        self._size = 0
        self._lock = Lock()
        self.count = 0
        self.limit_squared = limit * limit * (1 + ROUNDING64)
        self.keep_squared = self.limit_squared  # farther pairs are counted, not kept
        self.are_weighted = bool((weights > 1).any())

    def add_count(self, number: int) -> None:
        """Counts pairs that are surely within the limit."""
        with self._lock:
            self.count += number

    def offer(self, first: Rows, second: Rows, counted: NDArray[np.bool_] | None = None) -> None:
        """Compares pairs of kept rows, and keeps the near ones.

        Args:
            first, second: positions in `kept`.
            counted: pairs that were counted already; None: none.
        """
        if not len(first):
            return
        pairs = torch.from_numpy(self._kept[first]), torch.from_numpy(self._kept[second])
        distances = squared_distances(self._points, self._points, *pairs).sqrt_().numpy()
        near = distances <= self._limit
        new = near if counted is None else near & ~counted
        number = int((self._weights[first[new]] * self._weights[second[new]]).sum())
        low, high = np.minimum(first, second)[near], np.maximum(first, second)[near]
        with self._lock:
            self.count += number
            self._parts.append((low, high, distances[near]))
            self._size += len(low)
            if self._size > 2 * self._max_pairs:
                self._tighten()

    def _tighten(self) -> None:
        """Drops all but the nearest pairs; farther ones are no longer kept."""
        first, second, distances = self.sorted()
        self._parts = [(first, second, distances)]
        self._size = len(first)
        if self._size == self._max_pairs:
            self.keep_squared = float(distances[-1]) ** 2 * (1 + ROUNDING64)

    def sorted(self) -> tuple[Rows, Rows, Floats]:
        """Returns positions and distances of the nearest pairs, the nearest first."""
        if not self._parts:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        first, second, distances = map(np.concatenate, zip(*self._parts, strict=True))
        order = np.lexsort((second, first, distances))[: self._max_pairs]
        return first[order], second[order], distances[order]

    def rows(self) -> tuple[Rows, Rows, Floats]:
        """Returns rows of the points, and distances of the nearest pairs."""
        first, second, distances = self.sorted()
        return self._kept[first], self._kept[second], distances

    def weight_of(self, mask: NDArray[np.bool_], rows: Rows, columns: Rows) -> int:
        """Returns the number of pairs of all rows for the true entries of a mask."""
        if not self.are_weighted:
            return int(np.count_nonzero(mask))
        per_row = mask @ self._weights[columns].astype(np.float64)
        return round(float(per_row @ self._weights[rows]))


def _expand(
    pairs: _PairHeap, members: list[Rows] | None, max_pairs: int
) -> tuple[Rows, Rows, Floats]:
    """Returns the pairs of all rows that pairs of unequal rows stand for, the nearest first."""
    if members is None:
        return pairs.rows()
    low, high, distances = pairs.sorted()
    sizes = np.array([len(rows) for rows in members])
    numbers = sizes[low] * sizes[high]
    enough = int(np.searchsorted(np.cumsum(numbers), max_pairs))
    if enough < len(distances):  # with all pairs of the last distance
        enough = int(np.searchsorted(distances, distances[enough], side="right"))
    low, high, distances = low[:enough], high[:enough], distances[:enough]
    numbers = numbers[:enough]
    heads = np.array([rows[0] for rows in members])
    is_single = numbers == 1
    first, second = [heads[low[is_single]]], [heads[high[is_single]]]
    for left, right in zip(low[~is_single], high[~is_single], strict=True):
        first.append(np.repeat(members[left], sizes[right]))
        second.append(np.tile(members[right], sizes[left]))
    apart = np.concatenate(
        [distances[is_single], np.repeat(distances[~is_single], numbers[~is_single])]
    )
    rows, others = np.concatenate(first), np.concatenate(second)
    return np.minimum(rows, others), np.maximum(rows, others), apart


class _Cells(NamedTuple):
    """Cells of rows, and which rows are compared with which cell.

    Attributes:
        order: positions of the rows, those of a cell side by side (N).
        starts: of the C cells in `order`, and N.
        masks: C × ⌈N/8⌉ bits: whether a row, in this order, may have a near one in the cell.
    """

    order: Rows
    starts: Rows
    masks: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def rows_near(self, cell: int) -> Rows:
        """Returns the places in `order`, up to the end of a cell, that are compared with it."""
        end = int(self.starts[cell + 1])
        bits = np.unpackbits(self.masks[cell], count=end)
        return np.flatnonzero(bits)


def _make_cells(points: np.ndarray, kept: Rows, limit: float) -> _Cells:
    """Divides rows into cells; see the module."""
    count = len(kept)
    number = max(1, min(MOST_CELLS, int(count**0.5), count // CELL_ROWS))
    chosen = np.random.default_rng(0).choice(count, number, replace=False)
    centers = read_rows(points, kept[np.sort(chosen)])
    middle = centers.mean(dim=0)  # squares of small numbers lose fewer digits
    centers -= middle
    cell = np.empty(count, np.int64)
    for start in range(0, count, ROWS):
        block = read_rows(points, kept[start : start + ROWS]) - middle
        cell[start : start + ROWS] = _scores(block, centers).argmax(dim=1).numpy()
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(number + 1))
    apart = 2 * torch.cdist(centers, centers, compute_mode="donot_use_mm_for_euclid_dist")
    squares = centers.square().sum(dim=1)
    masks = np.zeros((number, -(-count // 8)), np.uint8)
    for start in range(0, count, ROWS):  # a multiple of 8
        rows = order[start : start + ROWS]
        block = read_rows(points, kept[rows]) - middle
        home = torch.from_numpy(cell[rows])
        scores = _scores(block, centers)
        margin = 2 * (scores.gather(1, home[:, None]) - scores)  # ‖x − b‖² − ‖x − a‖²
        rounding = ROUNDING64 * (block.square().sum(dim=1, keepdim=True) + squares.max())
        bound = apart[home] * limit + rounding * len(middle)
        near = ~(margin > bound)  # also where squares are out of range
        bits = np.packbits(near.numpy(), axis=0)
        masks[:, start // 8 : start // 8 + len(bits)] = bits.T
    return _Cells(order, starts, masks)


def _scores(block: Tensor, centers: Tensor) -> Tensor:
    """Returns x·c − ½‖c‖² for rows x and centers c: half of −‖x − c‖², up to ½‖x‖²."""
    return torch.addmm(-0.5 * centers.square().sum(dim=1), block, centers.T)


class _Projection:
    """Rows in their principal components, or in all dimensions, scaled to lengths of about 1.

    Args:
        points: N×D.
        rows: those of `points` that are compared, in their order.
        largest: absolute value in `points`.
        limit: largest distance of a pair.
    """

    def __init__(self, points: np.ndarray, rows: Rows, largest: float, limit: float) -> None:
        self._points, self._rows = points, rows
        step = max(1, len(rows) // FITTED_ROWS)
        sample = read_rows(points, rows[::step])
        self._center = sample.mean(dim=0)
        sample -= self._center
        self.scale = find_scale(largest)  # a power of two changes no digit
        limit *= self.scale
        sample *= self.scale
        covariance = sample.T @ sample
        components = torch.linalg.eigh(covariance).eigenvectors.flip(1)
        few = sample[:: max(1, len(sample) // SAMPLE)]
        self.size = _choose_size(few @ components, limit)
        self.is_complete = self.size == points.shape[1]
        self._axes = None if self.is_complete else components[:, : self.size]
        self._array: Tensor | None = None
        if not self.is_complete:
            self._array = torch.empty(len(rows), self.size + 2)
            for start in range(0, len(rows), ROWS):
                part = slice(start, start + ROWS)
                self._array[part] = self._make(part)
        self.slack = (self.size + 10) * UNIT

    def block(self, places: Rows | slice) -> Tensor:
        """Returns extended rows [x, ½‖x‖², 1] (n×(m+2), float32)."""
        if self._array is not None:
            return self._array[places]
        return self._make(places)

    def _make(self, places: Rows | slice) -> Tensor:
        block = read_rows(self._points, self._rows[places])
        block = (block - self._center) * self.scale
        if self._axes is not None:
            block = block @ self._axes
        half = 0.5 * block.square().sum(dim=1, keepdim=True)
        return torch.cat([block, half, torch.ones_like(half)], dim=1).float()


def _choose_size(sample: Tensor, limit: float) -> int:
    """Returns the components that few pairs of a sample pass; all if half of them are too few."""
    width = sample.shape[1]
    size = FIRST_COMPONENTS
    while size <= width // 2:
        distances = torch.cdist(sample[:, :size], sample[:, :size])
        passed = int((distances <= limit).sum()) - len(sample)
        if passed <= FEW * len(sample) ** 2:
            return size
        size *= 2
    return width


def _compare(points: np.ndarray, kept: Rows, largest: float, pairs: _PairHeap) -> None:
    """Compares all rows of `kept`, and offers pairs that may be near."""
    limit = pairs.limit_squared**0.5
    cells = _make_cells(points, kept, limit)
    projection = _Projection(points, kept[cells.order], largest, limit)
    threads = torch.get_num_threads()
    # A thread for each cell: the operations of a block are short, and threads would wait.
    with (
        fewer_threads(1),
        ThreadPoolExecutor(threads, "cells", torch.set_num_threads, (1,)) as pool,
    ):
        compare = partial(_compare_cell, cells, projection, pairs)
        tasks = [pool.submit(compare, cell) for cell in range(len(cells))]
        try:
            for task in show_progress(tasks, "comparing cell", len(cells)):
                task.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # those that have not begun
            raise


def _compare_cell(cells: _Cells, projection: _Projection, pairs: _PairHeap, cell: int) -> None:
    """Compares the rows of a cell with those before its end that may be near."""
    start, end = int(cells.starts[cell]), int(cells.starts[cell + 1])
    near = cells.rows_near(cell)
    for first in range(start, end, TILE[1]):
        columns = slice(first, min(first + TILE[1], end))
        candidates = near[near < columns.stop]  # a pair is compared by its later row
        block = _as_columns(projection.block(columns))
        for rows in _split(candidates):
            _compare_block(cells.order, rows, columns, block, projection, pairs)


def _split(places: Rows) -> Iterator[Rows]:
    for start in range(0, len(places), TILE[0]):
        yield places[start : start + TILE[0]]


def _as_columns(block: Tensor) -> Tensor:
    """Returns extended columns [y, −1, −½‖y‖²]: the product is −½‖x − y‖²."""
    return torch.cat([block[:, :-2], -block[:, -1:], -block[:, -2:-1]], dim=1)


def _compare_block(
    order: Rows,
    rows: Rows,
    columns: slice,
    block: Tensor,
    projection: _Projection,
    pairs: _PairHeap,
) -> None:
    """Compares rows with columns of a cell, and offers or counts those within the limit."""
    extended = projection.block(rows)
    scores = (extended @ block.T).numpy()
    # |computed − true| of a score is at most slack·(‖x‖ + ‖y‖)², see `score_error`
    norms = extended[:, -2] * 2.0, block[:, -1] * -2.0
    error_n = 2 * projection.slack * norms[0].numpy()[:, None]
    error_c = 2 * projection.slack * norms[1].numpy()
    largest_error = float(error_n.max() + error_c.max())
    scale = projection.scale**2
    limit, keep = -0.5 * pairs.limit_squared * scale, -0.5 * pairs.keep_squared * scale
    is_counted_by_score = projection.is_complete and keep > limit
    lowest = (keep if is_counted_by_score else limit) - largest_error
    is_pair = None
    if rows[-1] >= columns.start:  # of the cell itself: each pair once
        is_pair = rows[:, None] < np.arange(columns.start, columns.stop)
    passed = scores >= lowest
    if is_counted_by_score:
        sure = scores >= limit + largest_error
        if is_pair is not None:
            sure &= is_pair
        pairs.add_count(pairs.weight_of(sure, order[rows], order[columns]))
        passed |= (scores >= limit - largest_error) & ~sure
    if is_pair is not None:
        passed &= is_pair
    places = np.flatnonzero(passed)
    if not len(places):
        return
    row, column = np.divmod(places, passed.shape[1])
    is_possible = scores[row, column] >= limit - error_n[row, 0] - error_c[column]
    row, column = row[is_possible], column[is_possible]
    counted = sure[row, column] if is_counted_by_score else None
    pairs.offer(order[rows[row]], order[columns][column], counted)
