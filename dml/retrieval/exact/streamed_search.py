"""Exact neighbors in a file that is read block by block, by NumPy alone: for `dml search`.

`ExactSearch` copies and shuffles a gallery before its first product, and needs torch, whose import
takes longer than a query. Here each block of rows is centered, multiplied and forgotten. Candidates
come from float32 scores, a bound on their rounding error shows whether a neighbor may be missing,
and candidates are compared in float64, equal distances by row.

Shapes: Q queries, N rows, D dimensions, E = D + 2, n queries and c rows of a block, k neighbors, m
candidates, P entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dml.core.blas_threads import count_threads, one_thread_a_product
from dml.retrieval.exact.running_top import SCORE_BITS, RunningTop, above_threshold, row_bits

Array = NDArray[Any]

BLOCK_BYTES = 1 << 20  # of centered rows: they stay in a core's cache
MOST_ROWS = 1 << 14  # of a block, for vectors of few dimensions
MOST_QUERIES = 1024  # multiplied with a block at once
FEW_QUERIES = 64  # for more, blocks are smaller: the scores stay in the cache too
SAMPLE = 1024  # rows that show the scale
UNSCALED = 30  # exponents of two within which squares need no scale
MOST_EXPONENT = 480  # of a scale: `nearest_neighbors` refuses smaller vectors
FLOAT32_UNIT = 2.0**-24
TINIEST = 2.0**-120  # bound on the underflow error of a product, with a margin
LARGEST_BITS = 31  # of a row number, beside a score in 63 bits
MOST_TIES = 1 << 20  # entries whose order float32 leaves open
EXACT_BYTES = 4 << 20  # of float64 differences at once


class VectorRows:
    """Vectors that are read a part at a time.

    Args:
        read: returns the vectors of rows (a slice or an array of numbers), of float16 to float64.
        count: N.
    """

    def __init__(self, read: Callable[[Any], Array], count: int) -> None:
        self.read, self.count = read, count

    def read_numbers(self, rows: Any) -> Array:
        """Returns vectors in float64, of which half precision was float32 before."""
        return self.read(rows).astype(np.float64)


def find_nearest(vectors: VectorRows, queries: Array, k: int) -> tuple[Array, Array]:
    """Returns the rows of the exact k nearest vectors of each query, and their distances, Q×k each.

    Distances are Euclidean, by differences in float64; equal ones are in the order of the rows.

    Args:
        vectors: N×D.
        queries: Q×D, float32 or float64.
        k: 1 to N.

    Raises:
        ValueError: values are not finite; the message says how many.
    """
    streamed = stream_nearest(vectors, queries, k) if np.isfinite(queries).all() else None
    if streamed is not None:
        return streamed
    import torch  # imported late: it takes longer than most searches

    from dml.retrieval.exact.search import nearest_neighbors

    gallery = vectors.read(slice(None))
    precision = np.float64 if gallery.itemsize > 4 else np.float32
    asked = torch.from_numpy(queries.astype(np.float64))
    near = nearest_neighbors(asked, torch.from_numpy(gallery.astype(precision)), k=k)
    return near.indices.numpy(), near.distances.numpy()


def stream_nearest(vectors: VectorRows, queries: Array, k: int) -> tuple[Array, Array] | None:
    """Returns the result of `find_nearest` by blocks of rows.

    Args:
        vectors: N×D.
        queries: Q×D, float32 or float64, finite.
        k: 1 to N.

    Returns:
        Rows and distances, Q×k each. None where values are not finite, too large or too small,
        where too many distances are equal, or where N is above 2³¹: `nearest_neighbors` orders
        those, or says what is wrong.
    """
    if row_bits(vectors.count) > LARGEST_BITS:
        return None
    blocks = _Blocks(vectors, queries)
    is_small = 0 < blocks.reach < 2.0**-MOST_EXPONENT
    if is_small or not math.isfinite(blocks.reach):
        return None
    max_queries = min(MOST_QUERIES, 1 << (63 - SCORE_BITS - row_bits(vectors.count)))
    m = min(k + 5 + k // 16, vectors.count)
    parts = [queries[start : start + max_queries] for start in range(0, len(queries), max_queries)]
    extended = [blocks.extend_queries(part) for part in parts]
    tops = [RunningTop(len(part), m, vectors.count, is_shuffled=False) for part in parts]

    def keep(number: int, scores_nc: Array, first: int) -> None:
        tops[number].offer(scores_nc, first, first + scores_nc.shape[1])

    with one_thread_a_product():
        if not blocks.visit(extended, keep):
            return None
        rows, distances, lowest = _rank_candidates(blocks, queries, extended, tops, k)
        if not _rank_ties(blocks, queries, lowest, rows, distances):
            return None
    return rows, distances


class _Blocks:
    """Blocks of centered and scaled rows, multiplied with queries.

    A score is −½‖q − g‖² = [q, 1, −½‖q‖²]·[g, −½‖g‖², 1], of q and g from the mean of the queries:
    of a single query the errors are relative to its distances.

    Args:
        vectors: the rows.
        queries: Q×D.

    Attributes:
        reach: largest coordinate of the queries and of some rows from the center.
        unit: bound on the error of a score, relative to ½(‖q‖ + ‖g‖)².
        tiniest: bound on its underflow error.
    """

    def __init__(self, vectors: VectorRows, queries: Array) -> None:
        self.vectors, self.workers = vectors, count_threads()
        count, dim = vectors.count, queries.shape[1]
        sample = vectors.read(slice(0, None, max(1, count // SAMPLE)))
        precision = np.float64 if sample.itemsize > 4 else np.float32
        with np.errstate(over="ignore", invalid="ignore"):
            self.center = queries.mean(axis=0, dtype=np.float64).astype(precision)
            ends = [np.abs(part - self.center).max() for part in (sample, queries)]
        self.reach = float(max(ends)) if np.isfinite(ends).all() else math.inf
        self.scale = 1.0
        exponent = math.frexp(self.reach)[1] if math.isfinite(self.reach) else 0
        if abs(exponent) > UNSCALED:
            self.scale = math.ldexp(1.0, min(-exponent, MOST_EXPONENT))
        # a sum of D products, the float32 sum of squares, and the rounding of vectors and squares
        self.unit = 1.01 * FLOAT32_UNIT * (2 * dim + 8)
        self.tiniest = dim * TINIEST
        step = BLOCK_BYTES // (4 * (dim + 2))
        if len(queries) > FEW_QUERIES:
            step //= 2
        self.step = max(8, min(MOST_ROWS, step))

    def extend_queries(self, queries_nD: Array) -> Array:
        """Returns extended queries [q, 1, −½‖q‖²] (n×E, float32)."""
        n, dim = queries_nD.shape
        extended_nE = np.ones((n, dim + 2), np.float32)
        extended_nE[:, :dim] = self._scaled(queries_nD)
        extended_nE[:, -1] = -0.5 * np.square(extended_nE[:, :dim], dtype=np.float64).sum(axis=1)
        return extended_nE

    def _scaled(self, part_cD: Array) -> Array:
        """Returns centered and scaled vectors (c×D, float64)."""
        return (part_cD.astype(np.float64) - self.center) * self.scale

    def visit(self, queries: list[Array], function: Callable[[int, Array, int], None]) -> bool:
        """Calls a function with the scores of all rows, on several threads.

        Args:
            queries: parts of the queries, extended.
            function: called with the number of a part, its scores n×c, and the row of their first
                column.

        Returns:
            Whether all rows are finite in float32.
        """
        buffers = local()
        longest = max(map(len, queries))
        width = queries[0].shape[1]

        def work(first: int) -> bool:
            if not hasattr(buffers, "rows"):
                buffers.rows = np.ones((self.step, width), np.float32)
                buffers.scores = np.empty(longest * self.step, np.float32)
            part = self.vectors.read(slice(first, first + self.step))
            rows_cE = buffers.rows[: len(part)]
            if not self._extend_rows(part, rows_cE):
                return False
            for number, query_nE in enumerate(queries):
                scores = buffers.scores[: len(query_nE) * len(part)].reshape(len(query_nE), -1)
                function(number, np.matmul(query_nE, rows_cE.T, out=scores), first)
            return True

        with ThreadPoolExecutor(self.workers, "blocks") as pool:
            return all(pool.map(work, range(0, self.vectors.count, self.step)))

    def _extend_rows(self, part_cD: Array, rows_cE: Array) -> bool:
        """Writes extended rows [g, −½‖g‖², 1], and returns whether they are finite."""
        inner_cD = rows_cE[:, :-2]
        with np.errstate(over="ignore", invalid="ignore"):
            if self.scale == 1:
                np.subtract(part_cD, self.center, out=inner_cD, casting="same_kind")
            else:  # float32 has fewer digits for small numbers
                inner_cD[:] = self._scaled(part_cD)
            np.einsum("cd,cd->c", inner_cD, inner_cD, out=rows_cE[:, -2])
            rows_cE[:, -2] *= -0.5
        return bool(np.isfinite(rows_cE[:, -2]).all())

    def bound(self, extended_nE: Array, score_n: Array) -> Array:
        """Returns scores that no neighbor is below (n, float64), for k scores at least `score_n`.

        With u the relative error, the distance d of each of the k vectors has
        ½d² ≤ −score + u·½(2‖q‖ + d)², since ‖g‖ ≤ ‖q‖ + d. The k nearest are not farther than the
        largest such d, and their scores are at least −½d² − u·½(2‖q‖ + d)².
        """
        u = self.unit
        norm_n = np.sqrt(-2.0 * extended_nE[:, -1].astype(np.float64))
        apart_n = np.maximum(-score_n.astype(np.float64), 0) + self.tiniest
        root_n = np.sqrt((2 * u * norm_n) ** 2 + (1 - u) * (4 * u * norm_n**2 + 2 * apart_n))
        largest_n = (2 * u * norm_n + root_n) / (1 - u)
        return -0.5 * largest_n**2 - 0.5 * u * (2 * norm_n + largest_n) ** 2 - self.tiniest


def _rank_candidates(
    blocks: _Blocks, queries: Array, extended: list[Array], tops: list[RunningTop], k: int
) -> tuple[Array, Array, Array]:
    """Returns rows and distances Q×k, and scores that no neighbor is below.

    These (Q) are NaN for queries whose neighbors are known, and whose rows are filled.
    """
    rows, distances = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
    lowest = np.empty(len(queries))
    start = 0
    for top, query_nE in zip(tops, extended, strict=True):
        scores_nm, rows_nm = top.finish()
        lowest_n = blocks.bound(query_nE, scores_nm[:, k - 1])
        is_sure = np.isfinite(scores_nm).all(axis=1)
        if rows_nm.shape[1] < blocks.vectors.count:
            is_sure = is_sure & (scores_nm[:, -1] < lowest_n)
        lowest_n[is_sure] = np.nan
        lowest[start : start + len(query_nE)] = lowest_n
        for place in np.flatnonzero(is_sure):
            number = start + place
            candidates = rows_nm[place].astype(np.int64)
            nearest = _rank(blocks.vectors, queries[number], candidates, k)
            rows[number], distances[number] = nearest
        start += len(query_nE)
    return rows, distances, lowest


def _rank_ties(
    blocks: _Blocks, queries: Array, lowest: Array, rows: Array, distances: Array
) -> bool:
    """Fills the rows and distances of queries with more candidates than were kept.

    Returns:
        False if there are too many.
    """
    numbers = np.flatnonzero(~np.isnan(lowest))
    if not len(numbers):
        return True
    # the next lower float32 of each bound, since only higher scores are kept
    floors = np.nextafter(lowest[numbers].astype(np.float32), np.float32(-np.inf))
    parts: list[tuple[Array, Array]] = []
    count = 0
    lock = Lock()
    chunks = [
        numbers[start : start + MOST_QUERIES] for start in range(0, len(numbers), MOST_QUERIES)
    ]

    def keep(chunk: int, scores_nc: Array, first: int) -> None:
        nonlocal count
        start = chunk * MOST_QUERIES
        threshold_n = floors[start : start + len(scores_nc)]
        query_P, column_P, _ = above_threshold(scores_nc, threshold_n)
        with lock:
            count += len(query_P)
            if count <= MOST_TIES:
                parts.append((query_P + start, column_P + first))

    blocks.visit([blocks.extend_queries(queries[chunk]) for chunk in chunks], keep)
    if count > MOST_TIES:
        return False
    query_P, rows_P = (np.concatenate(part) for part in zip(*parts, strict=True))
    for place, number in enumerate(numbers):
        candidates = rows_P[query_P == place]
        nearest = _rank(blocks.vectors, queries[number], candidates, rows.shape[1])
        rows[number], distances[number] = nearest
    return True


def _rank(vectors: VectorRows, query: Array, rows_P: Array, k: int) -> tuple[Array, Array]:
    """Returns the k nearest of some rows and their distances, equal ones by row."""
    squared_P = np.empty(len(rows_P))
    step = max(1, EXACT_BYTES // (8 * len(query)))
    for start in range(0, len(rows_P), step):
        part = slice(start, start + step)
        difference = vectors.read_numbers(rows_P[part])
        difference -= query
        squared_P[part] = np.square(difference, out=difference).sum(axis=1)
    order = np.lexsort((rows_P, squared_P))[:k]
    return rows_P[order], np.sqrt(squared_P[order])
