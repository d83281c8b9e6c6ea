"""Entries of a ranking as numbers of 64 bits: query, score and gallery row, one after the other.

Whoever sorts such numbers sorts the entries by query, then by score, the best first, then by
gallery row: one sort of plain numbers, without an order that would have to be applied afterwards.

Shapes: n queries, P entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dml.retrieval import selection
from dml.retrieval.selection import Numbers

SCORE_BITS = 32
BITS = 63  # of an int64 without its sign
HIGHEST = 0x7FFFFFFF


def most_queries(items: int) -> int:
    """Returns how many queries can be told apart beside so many gallery rows, 1 to 2^31."""
    return 1 << (BITS - SCORE_BITS - _bits(items))


@dataclass(frozen=True)
class Packing:
    """How entries of a gallery are written as numbers.

    Args:
        items: rows of the gallery, 1 to 2^31.
    """

    items: int

    def pack(self, query_P: Tensor, column_P: Tensor, score_P: Tensor) -> Tensor:
        """Returns the entries (P, int64).

        Args:
            query_P: int64, 0 to `most_queries(items)` − 1.
            column_P: gallery rows, int64.
            score_P: float32.
        """

        def packed(query: Numbers, column: Numbers, bits: Numbers) -> Numbers:
            entries = query << SCORE_BITS
            entries += HIGHEST
            entries -= _ordered(bits)  # the higher the score, the lower the number
            entries <<= self._column_bits
            entries += column
            return entries

        return selection.natively(packed, query_P, column_P, score_P.view(torch.int32))

    def columns(self, entries: Tensor) -> Tensor:
        """Returns the gallery rows of some entries (int32)."""
        return entries.bitwise_and((1 << self._column_bits) - 1).int()

    def scores(self, entries: Tensor) -> Tensor:
        """Returns the scores of some entries (float32)."""
        falling = (entries >> self._column_bits).bitwise_and_((1 << SCORE_BITS) - 1)
        return _ordered((HIGHEST - falling).int()).view(torch.float32)

    def starts(self, entries_P: Tensor, queries: int) -> Tensor:
        """Returns where the entries of each query begin, and where the last ones end (n + 1).

        Args:
            entries_P: sorted.
            queries: n.
        """
        query_n = torch.arange(queries, device=entries_P.device)
        start_n = torch.searchsorted(entries_P, query_n << (SCORE_BITS + self._column_bits))
        return torch.cat([start_n, start_n.new_tensor([len(entries_P)])])

    @property
    def _column_bits(self) -> int:
        return _bits(self.items)


def _ordered(bits: Numbers) -> Numbers:
    """Turns the bits of floats into integers of the same order, and back: its own inverse."""
    return bits ^ ((bits >> 31) & HIGHEST)


def _bits(items: int) -> int:
    return (items - 1).bit_length()
