"""Selection from tiles of scores by NumPy.

NumPy's comparisons, partitions and sorts use a CPU's vector instructions and release the lock of
the interpreter; PyTorch's `topk`, `nonzero` and `sort` take three to eight times as long on a CPU.

Shapes: n queries and c gallery items of one tile, P entries.
"""

from __future__ import annotations

import math

import numpy as np

from dml.retrieval.cpu_search.packing import Array


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
