"""Entries of a ranking as 64-bit integers: query, score and gallery row, one after the other.

Sorting such integers sorts the entries by query, then by score, best first, then by gallery row:
one sort of plain numbers takes the place of a sort by three keys.

Shapes: n queries, P entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
