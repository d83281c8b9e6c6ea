"""Selecting from tiles of scores: by NumPy on a CPU, by PyTorch on a GPU.

Both do the same. NumPy's comparisons, partitions and sorts use a CPU's vector instructions and let
other threads run meanwhile; PyTorch's `topk` and `nonzero` take three to five times as long there.

Shapes: n queries and c gallery items of one tile, w entries kept for a query, P entries found.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def beyond(tile_nc: Tensor, threshold_n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Finds a tile's entries above their query's threshold.

    Args:
        tile_nc: scores, in row-major or column-major order.
        threshold_n: one for each row.

    Returns:
        Rows (ascending), columns and values (P each).
    """
    if not _in_numpys_reach(tile_nc):
        row_P, column_P = (tile_nc > threshold_n[:, None]).nonzero(as_tuple=True)
        return row_P, column_P, tile_nc[row_P, column_P]
    n, c = tile_nc.shape
    threshold = threshold_n.numpy()
    if tile_nc.stride(1) == 1:
        found, values = _above(tile_nc.numpy(), threshold[:, None])
        rows, columns = np.divmod(found, c)
    else:  # in the order of the memory, and then by rows: a radix sort, as 16 bits are enough
        found, values = _above(tile_nc.T.numpy(), threshold)
        columns, rows = np.divmod(found, n)
        order = np.argsort(rows.astype(np.uint16) if n <= 1 << 16 else rows, kind="stable")
        rows, columns, values = rows[order], columns[order], values[order]
    return torch.from_numpy(rows), torch.from_numpy(columns), torch.from_numpy(values)


def ranked(scores_nw: Tensor, rank: int) -> Tensor:
    """Returns the score (n) that stands at a rank, 1 to w, in each row."""
    if not _in_numpys_reach(scores_nw):
        return scores_nw.topk(rank, dim=1).values[:, -1]
    place = scores_nw.shape[1] - rank
    return torch.from_numpy(np.partition(scores_nw.numpy(), place, axis=1)[:, place].copy())


def best(scores_nw: Tensor, indices_nw: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Returns the m best entries of each row, scores (n×m) and indices (n×m), best first.

    Args:
        scores_nw: float32.
        indices_nw: int32, 0 or more.
        m: 1 to w.
    """
    if not _in_numpys_reach(scores_nw):
        scores_nm, order_nm = scores_nw.topk(m, dim=1)
        return scores_nm, indices_nw.gather(1, order_nm)
    # Numbers of 64 bits, score above index, sort as they are: without an order to be applied.
    keys = _ordered(scores_nw.numpy().view(np.int32)).astype(np.int64) << 32
    keys |= indices_nw.numpy()
    keys.sort(axis=1)
    keys = keys[:, : -m - 1 : -1]
    scores = _ordered((keys >> 32).astype(np.int32)).view(np.float32)
    return torch.from_numpy(scores), torch.from_numpy(keys.astype(np.int32))


def _in_numpys_reach(scores: Tensor) -> bool:
    return scores.device.type == "cpu"


def _above(
    scores: NDArray[np.float32], threshold: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Places in the memory of a tile, and what stands there."""
    found_P = np.flatnonzero(scores > threshold)
    return found_P, scores.reshape(-1)[found_P]


def _ordered(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """Turns the bits of floats into integers of the same order, and back: its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
