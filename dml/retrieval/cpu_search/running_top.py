"""The best-scored gallery items of some queries while tiles of scores pass by.

Sorting every score would cost more than computing it. So only entries that beat the query's
threshold are kept, unsorted until there are too many of them.

Shapes: n queries and c gallery items of one tile, m entries wanted, w ranks, P entries.

An entry (query, score, gallery row) is one 64-bit integer: sorting such integers sorts the entries
by query, then by score, best first, then by gallery row. Selection uses NumPy, whose comparisons,
partitions and sorts use a CPU's vector instructions and release the lock of the interpreter;
PyTorch's `topk`, `nonzero` and `sort` take three to eight times as long on a CPU.
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
BITS = 63  # of an int64 without its sign
HIGHEST = 0x7FFFFFFF


def max_queries(items: int) -> int:
    """Returns how many queries fit into an entry beside so many gallery rows, 1 to 2^31."""
    return 1 << (BITS - SCORE_BITS - _bits(items))


@dataclass(frozen=True)
class Packing:
    """The layout of the entries of one gallery.

    Args:
        items: rows of the gallery, 1 to 2^31.
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
        entries_P -= _ordered(score_P.view(np.int32))  # the higher the score, the lower the number
        entries_P <<= self._row_bits
        entries_P += row_P
        return entries_P

    def rows(self, entries: Array) -> Array:
        """Returns the gallery rows of some entries (int32)."""
        return (entries & ((1 << self._row_bits) - 1)).astype(np.int32)

    def scores(self, entries: Array) -> Array:
        """Returns the scores of some entries (float32)."""
        falling = (entries >> self._row_bits) & ((1 << SCORE_BITS) - 1)
        return _ordered((HIGHEST - falling).astype(np.int32)).view(np.float32)

    def starts(self, entries_P: Array, queries: int) -> Array:
        """Returns where the entries of each query begin, and where the last ones end (n + 1).

        Args:
            entries_P: sorted.
            queries: n.
        """
        first_n = np.arange(queries) << (SCORE_BITS + self._row_bits)
        return np.append(np.searchsorted(entries_P, first_n), len(entries_P))

    @property
    def _row_bits(self) -> int:
        return _bits(self.items)


def _ordered(bits: Array) -> Array:
    """Turns the bits of floats into integers of the same order, and back: its own inverse."""
    return bits ^ ((bits >> 31) & HIGHEST)


def _bits(items: int) -> int:
    return (items - 1).bit_length()


def above_threshold(
    tile_nc: Array, threshold_n: Array, limit: float = math.inf
) -> tuple[Array, Array, Array] | None:
    """Selects a tile's entries above their query's threshold.

    Args:
        tile_nc: scores, in row-major or column-major order.
        threshold_n: one for each row.
        limit: how many may be selected.

    Returns:
        Rows, columns and values (P each) in the order of the memory; None if there are more of
        them than `limit`.
    """
    row_major = tile_nc.flags.c_contiguous
    memory = tile_nc if row_major else tile_nc.T
    above = memory > (threshold_n[:, None] if row_major else threshold_n)
    place_P = np.flatnonzero(above)
    if len(place_P) > limit:
        return None
    value_P = memory.reshape(-1)[place_P]
    outer_P = place_P // memory.shape[1]
    place_P -= outer_P * memory.shape[1]
    return (outer_P, place_P, value_P) if row_major else (place_P, outer_P, value_P)


def kth_largest(tile_nc: Array, rank: int) -> Array:
    """Returns the score (n) at a rank, 1 to c, of each row."""
    place = tile_nc.shape[1] - rank
    return np.partition(tile_nc, place, axis=1)[:, place].copy()


ENTRY_BYTES = 8
SPARE = 8  # room for this many entries of a query beside m
DEVIATIONS = 4.5  # margin of the thresholds: a few queries in a million are scored again


class RunningTop:
    """The m best entries of each of n queries among the tiles seen so far.

    An entry is kept if it beats the query's threshold. Tiles are random samples of the gallery, so
    after a share f of it about m·f of the final m best have been seen: the threshold is set to the
    score of that rank (and some more), which lets far fewer entries pass than waiting for m of
    them. A query whose threshold turns out to have been too high is reported by `finish` and has to
    be scored again cautiously, with the m-th best so far as the threshold.

    Several threads may offer tiles at once.

    Args:
        queries: n, at most `max_queries(items)`.
        m: entries wanted for each, at most `items` less the query itself.
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
        """Memory for one query with m candidates."""
        return ENTRY_BYTES * 3 * (m + SPARE)

    def offer(self, tile_nc: Array, first: int, seen: int) -> None:
        """Keeps all entries of a tile that beat the thresholds.

        Args:
            tile_nc: scores. A transposed matrix is fine.
            first: row of the gallery where the tile begins.
            seen: gallery items these queries have seen with this tile, or somewhat more.
        """
        with self._lock:
            if not self._started:
                self._start(tile_nc, seen)
            threshold_n = self._threshold_n
        # another thread may raise the thresholds meanwhile: then more is kept than needed
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
        """Sets the thresholds to what the share seen allows."""
        rank = self._rank(seen)
        with self._lock:
            _, score_nw = self._at_ranks(rank - 1, rank)
            self._threshold_n = np.maximum(self._threshold_n, score_nw[:, 0])

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the m best entries of each query, and forgets all.

        Returns:
            Scores (n×m) and gallery rows (n×m, int32), best first; numbers of the queries that may
            have missed an entry and have to be scored again.
        """
        with self._lock:
            entries_nm, score_nm = self._at_ranks(0, self.m)
            missed = np.flatnonzero(score_nm[:, -1] < self._threshold_n)
            self._parts.clear()
        rows_nm = self._packing.rows(entries_nm)
        return torch.from_numpy(score_nm), torch.from_numpy(rows_nm), torch.from_numpy(missed)

    @property
    def _room(self) -> int:
        """Most entries kept of one tile; twice as many are collected before a sort."""
        return self.queries * (self.m + SPARE)

    def _rank(self, seen: int) -> int:
        """The rank in a sample of `seen` items that is surely not above rank m in the gallery."""
        share = seen / self.items
        if self.cautious or share >= 1:
            return self.m
        # drawing without replacement: the number of the m best in the sample is hypergeometric
        expected, deviation = self.m * share, math.sqrt(self.m * share * (1 - share))
        return min(self.m, math.ceil(expected + DEVIATIONS * deviation + 1.5))

    def _start(self, tile_nc: Array, seen: int) -> None:
        """Sets the first thresholds from a tile, unless they would let most of it pass."""
        self._started = True
        rank = self._rank(seen)
        if rank <= tile_nc.shape[1] // 2:
            # just below, so that the entry of this rank is kept too
            self._threshold_n = np.nextafter(kth_largest(tile_nc, rank), np.float32(-np.inf))

    def _best_of_tile(self, tile_nc: Array) -> tuple[Array, Array, Array]:
        """Selects the best of a tile that has more good entries than there is room for."""
        best = torch.from_numpy(tile_nc).topk(min(self.m, tile_nc.shape[1]), dim=1)
        query_P = np.arange(len(tile_nc)).repeat(best.indices.shape[1])
        return query_P, best.indices.flatten().numpy(), best.values.flatten().numpy()

    def _drop_surplus(self, seen: int) -> None:
        """Keeps what can be among the m best and raises the thresholds accordingly."""
        entries_nw, score_nw = self._at_ranks(0, self._rank(seen))
        # what is dropped has at most the threshold, like all that is not kept from now on
        self._threshold_n = np.maximum(self._threshold_n, score_nw[:, -1])
        self._parts = [entries_nw[score_nw > -np.inf]]
        self._kept = len(self._parts[0])

    def _at_ranks(self, start: int, stop: int) -> tuple[Array, Array]:
        """Returns the entries at some ranks of each query and their scores (n×w), −∞ if absent."""
        entries_P = np.sort(np.concatenate(self._parts))
        self._parts = [entries_P]
        ends_n = self._packing.starts(entries_P, self.queries)
        place_nw = ends_n[:-1, None] + np.arange(start, stop)
        absent_nw = place_nw >= ends_n[1:, None]
        entries_nw = entries_P[place_nw.clip(max=len(entries_P) - 1)]
        score_nw = self._packing.scores(entries_nw)
        score_nw[absent_nw] = -np.inf
        return entries_nw, score_nw
