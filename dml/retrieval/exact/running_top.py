"""The best entries of each query, kept while scores come tile by tile. It needs no torch.

Shapes: n queries and c gallery items of one tile, m candidates, w ranks, P entries, W
integers of eight truth values.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SPARE = 8  # entries kept per query, in addition to m
DEVIATIONS = 4.5  # margin of the thresholds: a few queries in a million are searched again
SCORE_BITS = 32
GROUP = 8  # truth values that are read as one integer


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
        is_shuffled: whether each tile is a random sample of the gallery; if not, thresholds are
            scores of m known entries, and `finish` marks queries with ties only.
    """

    def __init__(self, queries: int, m: int, items: int, is_shuffled: bool = True) -> None:
        self.queries, self.m, self.items = queries, m, items
        self.is_shuffled = is_shuffled
        self._row_bits = row_bits(items)
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

    def finish(self) -> tuple[Array, Array]:
        """Returns scores and gallery rows as `PlainSearch.best`, and drops all entries."""
        with self._lock:
            entries_nm, score_nm = self._first(self.m)
            self._parts.clear()
        missed_n = score_nm[:, -1] < self._threshold_n
        score_nm[missed_n, -1] = np.inf
        rows_nm = (entries_nm & ((1 << self._row_bits) - 1)).astype(np.int32)
        return score_nm, rows_nm

    def _rank(self, seen: int) -> int:
        """Returns the sample rank whose score is very likely not above the gallery's m-th best."""
        share = seen / self.items
        if share >= 1 or not self.is_shuffled:
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
    inner_P = _true_places(memory > (threshold_n[:, None] if row_major else threshold_n))
    value_P = memory.reshape(-1)[inner_P]
    outer_P = inner_P // memory.shape[1]
    inner_P -= outer_P * memory.shape[1]
    return (outer_P, inner_P, value_P) if row_major else (inner_P, outer_P, value_P)


def _true_places(mask: Array) -> Array:
    """Returns the flat indices of the true entries (P), which are few, in ascending order.

    Eight entries are read as one integer, which is 0 in nearly all places.
    """
    flat = mask.reshape(-1)
    if len(flat) % GROUP:
        return np.flatnonzero(flat)
    word_W = np.flatnonzero(flat.view(np.uint64) != 0)
    inner_P = np.flatnonzero(flat.reshape(-1, GROUP)[word_W])
    return GROUP * word_W[inner_P // GROUP] + inner_P % GROUP


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


def row_bits(items: int) -> int:
    """Returns the bits of a row number."""
    return (items - 1).bit_length()
