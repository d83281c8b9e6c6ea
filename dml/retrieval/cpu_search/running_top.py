"""The best gallery items of queries, updated tile by tile of scores.

Sorting all scores would cost more than computing them. Therefore only entries above the query's
threshold are kept, unsorted until there are too many.

Shapes: n queries and c gallery items of one tile, m candidates, w ranks, P entries.

An entry (query, score, gallery row) is one 64-bit integer: sorting these integers sorts the entries
by query, then by descending score, then by gallery row. Selection uses NumPy, whose comparisons,
partitions and sorts use a CPU's vector instructions and release the interpreter lock; PyTorch's
`topk`, `nonzero` and `sort` take three to eight times as long on a CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]

SCORE_BITS = 32
BITS = 63  # of an int64 without the sign
HIGHEST = 0x7FFFFFFF


def max_queries(items: int) -> int:
    """Returns the number of queries that entries can hold for 1 to 2^31 gallery rows."""
    return 1 << (BITS - SCORE_BITS - _bits(items))


@dataclass(frozen=True)
class Packing:
    """The bit layout of the entries for a gallery.

    Args:
        items: number of gallery rows, 1 to 2^31.
    """

    items: int

    def pack(self, query_P: Array, row_P: Array, score_P: Array) -> Array:
        """Returns the entries (P, int64).

        Args:
            query_P: int64, 0 to `max_queries(items)` − 1.
            row_P: gallery rows, int64.
            score_P: float32.
        """
        entries_P = query_P << SCORE_BITS
        entries_P += HIGHEST
        entries_P -= _ordered(score_P.view(np.int32))  # a higher score is a lower number
        entries_P <<= self._row_bits
        entries_P += row_P
        return entries_P

    def rows(self, entries: Array) -> Array:
        """Returns the gallery rows of entries (int32)."""
        return (entries & ((1 << self._row_bits) - 1)).astype(np.int32)

    def scores(self, entries: Array) -> Array:
        """Returns the scores of entries (float32)."""
        falling = (entries >> self._row_bits) & ((1 << SCORE_BITS) - 1)
        return _ordered((HIGHEST - falling).astype(np.int32)).view(np.float32)

    def starts(self, entries_P: Array, queries: int) -> Array:
        """Returns the start of each query's entries, and the end of the last ones (n + 1 indices).

        Args:
            entries_P: sorted entries.
            queries: n.
        """
        first_n = np.arange(queries) << (SCORE_BITS + self._row_bits)
        return np.append(np.searchsorted(entries_P, first_n), len(entries_P))

    @property
    def _row_bits(self) -> int:
        return _bits(self.items)


def _ordered(bits: Array) -> Array:
    """Converts the bits of floats to integers of the same order, and back (self-inverse)."""
    return bits ^ ((bits >> 31) & HIGHEST)


def _bits(items: int) -> int:
    return (items - 1).bit_length()


def above_threshold(
    tile_nc: Array, threshold_n: Array, limit: float = math.inf
) -> tuple[Array, Array, Array] | None:
    """Returns the entries of a tile above the thresholds of their rows.

    Args:
        tile_nc: scores, in row-major or column-major order.
        threshold_n: threshold of each row.
        limit: maximum number of entries.

    Returns:
        Rows, columns and values (P each) in the order of the memory; None if there are more than
        `limit` entries.
    """
    row_major = tile_nc.flags.c_contiguous
    memory = tile_nc if row_major else tile_nc.T
    above = memory > (threshold_n[:, None] if row_major else threshold_n)
    inner_P = np.flatnonzero(above)
    if len(inner_P) > limit:
        return None
    value_P = memory.reshape(-1)[inner_P]
    outer_P = inner_P // memory.shape[1]
    inner_P -= outer_P * memory.shape[1]
    return (outer_P, inner_P, value_P) if row_major else (inner_P, outer_P, value_P)


def kth_largest(tile_nc: Array, rank: int) -> Array:
    """Returns the score at a rank, 1 to c, in each row (n)."""
    column = tile_nc.shape[1] - rank
    return np.partition(tile_nc, column, axis=1)[:, column].copy()


ENTRY_BYTES = 8
SPARE = 8  # additional entries per query, in addition to m
DEVIATIONS = 4.5  # margin of the thresholds: a few queries in a million are scanned again


class RunningTop:
    """The m best entries of each of n queries in the tiles so far.

    An entry is kept if it exceeds the query's threshold. Tiles are random samples of the gallery:
    a share f of the gallery contains about m·f of the m best entries. The threshold is therefore
    the score of this rank, with a margin, and far fewer entries pass than with the m-th best score.
    `finish` reports queries whose threshold was too high; these must be scanned again with
    `cautious`, where the threshold is the m-th best score so far.

    Several threads may call `offer` at once.

    Args:
        queries: n, at most `max_queries(items)`.
        m: number of best entries per query, at most `items` without the query itself.
        items: size of the gallery.
        cautious: never miss an entry.
    """

    def __init__(self, queries: int, m: int, items: int, *, cautious: bool = False) -> None:
        self.queries, self.m, self.items, self.cautious = queries, m, items, cautious
        self._packing = Packing(items)
        self._threshold_n: Array = np.full(queries, -np.inf, np.float32)
        self._started = False
        self._parts: list[Array] = []
        self._kept = 0
        self._lock = Lock()

    @staticmethod
    def bytes_per_query(m: int) -> int:
        """Returns the memory per query with m candidates."""
        return ENTRY_BYTES * 3 * (m + SPARE)

    def offer(self, tile_nc: Array, first: int, seen: int) -> None:
        """Keeps all entries of a tile above the thresholds.

        Args:
            tile_nc: scores; may be a transposed matrix.
            first: first gallery row of the tile.
            seen: number of gallery items offered so far, including this tile, or slightly more.
        """
        with self._lock:
            if not self._started:
                self._start(tile_nc, seen)
            threshold_n = self._threshold_n
        # another thread may raise the thresholds meanwhile: then more entries are kept than needed
        selected = above_threshold(tile_nc, threshold_n, limit=self._room)
        query_P, column_P, score_P = selected or self._best_of_tile(tile_nc)
        column_P += first
        entries_P = self._packing.pack(query_P, column_P, score_P)
        with self._lock:
            self._parts.append(entries_P)
            self._kept += len(entries_P)
            if selected is None or self._kept > 2 * self._room:
                self._drop_surplus(seen)

    def raise_thresholds(self, seen: int) -> None:
        """Raises the thresholds according to the number of gallery items seen so far."""
        rank = self._rank(seen)
        with self._lock:
            _, score_nw = self._at_ranks(rank - 1, rank)
            self._threshold_n = np.maximum(self._threshold_n, score_nw[:, 0])

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the m best entries of each query, and drops all entries.

        Returns:
            Scores (n×m) and gallery rows (n×m, int32), best first; indices of queries that may have
            missed an entry and must be scanned again.
        """
        with self._lock:
            entries_nm, score_nm = self._at_ranks(0, self.m)
            missed = np.flatnonzero(score_nm[:, -1] < self._threshold_n)
            self._parts.clear()
        rows_nm = self._packing.rows(entries_nm)
        return torch.from_numpy(score_nm), torch.from_numpy(rows_nm), torch.from_numpy(missed)

    @property
    def _room(self) -> int:
        """Largest number of entries kept from a tile; twice as many are collected before a sort."""
        return self.queries * (self.m + SPARE)

    def _rank(self, seen: int) -> int:
        """Returns the sample rank whose score is very likely not above the gallery's m-th best."""
        share = seen / self.items
        if self.cautious or share >= 1:
            return self.m
        # drawing without replacement: the number of the m best in the sample is hypergeometric
        expected, deviation = self.m * share, math.sqrt(self.m * share * (1 - share))
        return min(self.m, math.ceil(expected + DEVIATIONS * deviation + 1.5))

    def _start(self, tile_nc: Array, seen: int) -> None:
        """Sets the first thresholds from a tile, unless most of its entries would pass."""
        self._started = True
        rank = self._rank(seen)
        if rank <= tile_nc.shape[1] // 2:
            # just below, so that the entry of this rank is kept too
            self._threshold_n = np.nextafter(kth_largest(tile_nc, rank), np.float32(-np.inf))

    def _best_of_tile(self, tile_nc: Array) -> tuple[Array, Array, Array]:
        """Returns the m best entries per query of a tile with too many good entries."""
        best = torch.from_numpy(tile_nc).topk(min(self.m, tile_nc.shape[1]), dim=1)
        query_P = np.arange(len(tile_nc)).repeat(best.indices.shape[1])
        return query_P, best.indices.flatten().numpy(), best.values.flatten().numpy()

    def _drop_surplus(self, seen: int) -> None:
        """Keeps the entries that can be among the m best, and raises the thresholds accordingly."""
        entries_nw, score_nw = self._at_ranks(0, self._rank(seen))
        # dropped entries have at most the threshold, like all entries that are not kept later
        self._threshold_n = np.maximum(self._threshold_n, score_nw[:, -1])
        self._parts = [entries_nw[score_nw > -np.inf]]
        self._kept = len(self._parts[0])

    def _at_ranks(self, start: int, stop: int) -> tuple[Array, Array]:
        """Returns the entries of each query at some ranks, and their scores (n×w; −∞: no entry)."""
        entries_P = np.sort(np.concatenate(self._parts))
        self._parts = [entries_P]
        ends_n = self._packing.starts(entries_P, self.queries)
        index_nw = ends_n[:-1, None] + np.arange(start, stop)
        absent_nw = index_nw >= ends_n[1:, None]
        entries_nw = entries_P[index_nw.clip(max=len(entries_P) - 1)]
        score_nw = self._packing.scores(entries_nw)
        score_nw[absent_nw] = -np.inf
        return entries_nw, score_nw
