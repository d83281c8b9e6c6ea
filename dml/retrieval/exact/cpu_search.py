"""The search engine for CPUs: the candidates of `PlainSearch` in a fraction of the time.

`PlainSearch` is one matrix product and one `topk`. On a CPU the product for Stanford Online
Products (60,502² scores) takes seconds, `topk` takes three times as long, and the scores do not fit
into memory. This engine needs half of the product and very little sorting:

1. `ScaledGallery` shuffles the items and divides them into tiles of up to 1536 items: a tile of
   scores stays in the processor's cache, and every tile is a random sample of the gallery.
2. If the queries are the gallery itself, a tile of scores is used for its rows and, transposed, for
   its columns: each pair is computed once (`CpuSearch.table`). Other queries are compared with all
   tiles in turn (`CpuSearch.best`).
3. `RunningTop` keeps the entries above a threshold, which may be among a query's m best. A sample
   of a share f of the gallery contains about m·f of the m best entries; the threshold is the score
   at this rank plus 4.5 standard deviations, long before m good entries are known. Nearly all later
   scores are dropped by one comparison, without a sort.
4. Each thread processes a whole tile: threads that share the twenty short operations of a tile
   would wait for each other twenty times.

With a small probability, a sample gives a threshold that is too high. Then fewer than m kept
entries reach the threshold. `RunningTop.finish` detects this, since all dropped scores are at most
the threshold, and marks the queries, a few in a million, which `search` searches again.

Shapes: n queries and c gallery items of one tile, N' gallery rows, E extended dimensions, m
candidates, w ranks, P entries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock, local
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dml.retrieval.exact.plain_search import ForEach, PlainSearch
from dml.retrieval.exact.scaled_gallery import ScaledGallery, as_queries

Array = NDArray[Any]

BYTES_PER_WORKER = 24 << 20  # a tile of 9 MB and the buffers for the selection
SPARE = 8  # entries kept per query, in addition to m
DEVIATIONS = 4.5  # margin of the thresholds: a few queries in a million are searched again
SCORE_BITS = 32


class CpuSearch(PlainSearch):
    """Proposes candidates tile by tile, on several threads; see `PlainSearch`."""

    max_queries = 1024

    def __init__(self, gallery: ScaledGallery, memory_bytes: int) -> None:
        # as many tiles in parallel as memory and torch's threads allow
        self.workers = max(1, min(torch.get_num_threads(), memory_bytes // BYTES_PER_WORKER))
        super().__init__(gallery, memory_bytes // self.workers)
        limit = 1 << (63 - SCORE_BITS - _row_bits(len(gallery.rows)))
        self._has_table = gallery.tile <= limit and len(gallery.rows) > gallery.tile
        self.max_queries = min(self.max_queries, limit)

    @contextmanager
    def threads(self) -> Iterator[ForEach]:
        """See `PlainSearch.threads`.

        PyTorch's threads are divided among the workers and the caller: after short operations of
        the caller, its threads would spin for milliseconds on the cores of the workers.
        """
        before = torch.get_num_threads()
        share = max(1, before // self.workers)
        torch.set_num_threads(share)
        pool = ThreadPoolExecutor(self.workers, "tiles", torch.set_num_threads, (share,))
        try:
            with pool:
                yield lambda function, items: list(pool.map(function, items))
        finally:
            # new threads inherit the last number that was set, so the number is restored at the end
            torch.set_num_threads(before)

    def bytes_per_query(self, m: int) -> int:
        """See `PlainSearch.bytes_per_query`: a row of a tile, its entries and the candidates."""
        return 4 * self.gallery.tile + 24 * (m + SPARE) + 40 * m

    def table(self, m: int, for_each: ForEach) -> tuple[Tensor, Tensor] | None:
        """See `PlainSearch.table`: half of the product, if the table fits into memory.

        Tiles are processed diagonal by diagonal, so that all queries are compared with equally many
        tiles at a time, and thresholds rise early.
        """
        tile, rows = self.gallery.tile, self.gallery.rows
        total = len(rows)
        if not self._has_table or total * (24 * (m + SPARE) + 8 * m) > (
            self.memory_bytes * self.workers
        ):
            return None
        blocks = rows.split(tile)
        tops = [RunningTop(tile, m, total) for _ in blocks]
        buffers = local()

        def visit(pair: tuple[int, int]) -> None:
            offset, number = pair
            other = (number + offset) % len(blocks)
            # other threads may be behind, so that fewer items are seen; thresholds then are lower
            seen = min(total, (2 * offset + 1) * tile)
            if not hasattr(buffers, "scores"):  # new memory would halve the speed
                buffers.scores, buffers.queries = rows.new_empty(tile, tile), blocks[0].clone()
            queries = as_queries(blocks[number], buffers.queries)
            torch.mm(queries, blocks[other].T, out=buffers.scores)
            tops[number].offer(buffers.scores.numpy(), other * tile, seen)
            if offset > 0:
                tops[other].offer(buffers.scores.numpy().T, number * tile, seen)

        count = len(blocks)
        pairs = itertools.product(range(count // 2 + 1), range(count))
        # the last diagonal of an even number of blocks would contain every pair twice
        for_each(visit, [pair for pair in pairs if 2 * pair[0] < count or pair[1] < pair[0]])
        scores, gallery_rows = zip(*for_each(RunningTop.finish, tops), strict=True)
        return torch.cat(scores), torch.cat(gallery_rows)

    def best(self, query_nE: Tensor, m: int) -> tuple[Tensor, Tensor]:
        """See `PlainSearch.best`."""
        n, total, tile = len(query_nE), len(self.gallery.rows), self.gallery.tile
        top = RunningTop(n, m, total)
        step = tile * max(1, min(tile // n, total // tile))  # for few queries, several tiles
        buffer = query_nE.new_empty(n * step)
        for first in range(0, total, step):
            rows = self.gallery.rows[first : first + step]
            scores = buffer[: n * len(rows)].view(n, -1)
            torch.mm(query_nE, rows.T, out=scores)
            top.offer(scores.numpy(), first, first + len(rows))
        return top.finish()


class RunningTop:
    """The m best entries of each of n queries in the tiles so far.

    An entry (query, score, gallery row) is one 64-bit integer: sorting these integers sorts the
    entries by query, then by descending score, then by gallery row. NumPy selects and
    sorts: its vector instructions are three to eight times as fast here as PyTorch's `topk`,
    `nonzero` and `sort`, and it releases the interpreter lock. Several threads may call `offer` at
    once.

    Args:
        queries: n; n·2^32·items is at most 2^63.
        m: number of best entries per query, at most `items`.
        items: number of gallery rows.
    """

    def __init__(self, queries: int, m: int, items: int) -> None:
        self.queries, self.m, self.items = queries, m, items
        self._row_bits = _row_bits(items)
        self._threshold_n: Array | None = None
        self._parts: list[Array] = [np.array([np.iinfo(np.int64).max])]  # of no query
        self._kept = 0
        self._lock = Lock()

    def offer(self, tile_nc: Array, first: int, seen: int) -> None:
        """Keeps all entries of a tile above the thresholds.

        Args:
            tile_nc: scores, at most 0 except for rounding errors; may be a transposed matrix.
            first: first gallery row of the tile.
            seen: number of gallery items offered so far, including this tile, or slightly more.
        """
        with self._lock:
            if self._threshold_n is None:
                self._threshold_n = _sampled_threshold(tile_nc, self._rank(seen))
            threshold_n = self._threshold_n
        # another thread may raise the thresholds meanwhile: then more entries are kept than needed
        query_P, column_P, score_P = above_threshold(tile_nc, threshold_n)
        entries_P = query_P << SCORE_BITS
        # the bits of positive floats are ordered like the floats
        entries_P |= np.abs(np.minimum(score_P, 0)).view(np.int32)
        entries_P <<= self._row_bits
        entries_P |= column_P + first
        with self._lock:
            self._parts.append(entries_P)
            self._kept += len(entries_P)
            if self._kept > 2 * self.queries * (self.m + SPARE):
                # dropped entries have at most the threshold, like all entries that are not kept
                entries_nw, score_nw = self._first(self._rank(seen))
                self._threshold_n = np.maximum(self._threshold_n, score_nw[:, -1])
                self._parts = [entries_nw[score_nw > -np.inf]]
                self._kept = len(self._parts[0])

    def finish(self) -> tuple[Tensor, Tensor]:
        """Returns scores and gallery rows as `PlainSearch.best`, and drops all entries."""
        with self._lock:
            entries_nm, score_nm = self._first(self.m)
            self._parts.clear()
        missed_n = score_nm[:, -1] < self._threshold_n
        score_nm[missed_n, -1] = np.inf
        rows_nm = (entries_nm & ((1 << self._row_bits) - 1)).astype(np.int32)
        return torch.from_numpy(score_nm), torch.from_numpy(rows_nm)

    def _rank(self, seen: int) -> int:
        """Returns the sample rank whose score is very likely not above the gallery's m-th best."""
        share = seen / self.items
        if share >= 1:
            return self.m
        # drawing without replacement: the number of the m best in the sample is hypergeometric
        expected, deviation = self.m * share, math.sqrt(self.m * share * (1 - share))
        return min(self.m, math.ceil(expected + DEVIATIONS * deviation + 1.5))

    def _first(self, count: int) -> tuple[Array, Array]:
        """Returns the first entries of each query, and their scores (n×w; 0 and −∞: no entry)."""
        entries_P = np.sort(np.concatenate(self._parts))
        self._parts = [entries_P]
        shift = SCORE_BITS + self._row_bits
        ends = np.searchsorted(entries_P, (np.arange(self.queries + 1) << shift) - 1)
        index_nw = ends[:-1, None] + np.arange(count)
        absent_nw = index_nw >= ends[1:, None]
        index_nw[absent_nw] = 0
        entries_nw = entries_P[index_nw]
        score_nw = -(entries_nw >> self._row_bits).astype(np.int32).view(np.float32)
        entries_nw[absent_nw], score_nw[absent_nw] = 0, -np.inf
        return entries_nw, score_nw


def above_threshold(tile_nc: Array, threshold_n: Array) -> tuple[Array, Array, Array]:
    """Returns rows, columns and values of the entries above the thresholds of their rows (P each).

    Args:
        tile_nc: scores, in row-major or column-major order.
        threshold_n: threshold of each row.
    """
    row_major = tile_nc.flags.c_contiguous
    memory = tile_nc if row_major else tile_nc.T
    inner_P = np.flatnonzero(memory > (threshold_n[:, None] if row_major else threshold_n))
    value_P = memory.reshape(-1)[inner_P]
    outer_P = inner_P // memory.shape[1]
    inner_P -= outer_P * memory.shape[1]
    return (outer_P, inner_P, value_P) if row_major else (inner_P, outer_P, value_P)


def _sampled_threshold(tile_nc: Array, rank: int) -> Array:
    """Returns a score that at least `rank` entries of each row exceed, unless there are ties (n).

    In a long row, the maxima of groups of eight entries are ranked, which is faster and hardly
    lower.
    """
    n, c = tile_nc.shape
    if 32 * rank <= c and c % 8 == 0:
        tile_nc = tile_nc.reshape(n, 8, c // 8).max(axis=1)
    column = tile_nc.shape[1] - rank - 1
    if column < 0:
        return np.full(n, -np.inf, np.float32)
    return np.partition(tile_nc, column, axis=1)[:, column].copy()


def _row_bits(items: int) -> int:
    return (items - 1).bit_length()
