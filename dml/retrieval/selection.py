"""Selecting from tiles of scores: by NumPy on a CPU, by PyTorch on a GPU.

Both do the same. NumPy's comparisons, partitions and sorts use a CPU's vector instructions and let
other threads run meanwhile; PyTorch's `topk` and `nonzero` take three to five times as long there,
its arithmetic on some thousand numbers twice as long.

Shapes: n queries and c gallery items of one tile, P entries found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers = TypeVar("Numbers", Tensor, NDArray[Any])
Found = tuple[Tensor, Tensor, Tensor]


@overload
def above_threshold(tile_nc: Tensor, threshold_n: Tensor) -> Found: ...


@overload
def above_threshold(tile_nc: Tensor, threshold_n: Tensor, most: int) -> Found | None: ...


def above_threshold(tile_nc: Tensor, threshold_n: Tensor, most: float = math.inf) -> Found | None:
    """Finds a tile's entries above their query's threshold.

    Args:
        tile_nc: scores, in row-major or column-major order.
        threshold_n: one for each row.
        most: how many may be found.

    Returns:
        Rows, columns and values (P each) in the order of the memory; None if there are more of
        them than `most`.
    """
    if not _in_numpys_reach(tile_nc):
        above_nc = tile_nc > threshold_n[:, None]
        if int(above_nc.count_nonzero()) > most:
            return None
        row_P, column_P = above_nc.nonzero(as_tuple=True)
        return row_P, column_P, tile_nc[row_P, column_P]
    threshold = threshold_n.numpy()
    row_major = tile_nc.stride(1) == 1
    memory = tile_nc.numpy() if row_major else tile_nc.T.numpy()
    above = memory > (threshold[:, None] if row_major else threshold)
    found_P = np.flatnonzero(above)
    if len(found_P) > most:
        return None
    values_P = memory.reshape(-1)[found_P]
    outer_P = found_P // memory.shape[1]
    found_P -= outer_P * memory.shape[1]
    rows_P, columns_P = (outer_P, found_P) if row_major else (found_P, outer_P)
    return torch.from_numpy(rows_P), torch.from_numpy(columns_P), torch.from_numpy(values_P)


def kth_largest(scores_nc: Tensor, rank: int) -> Tensor:
    """Returns the score (n) that stands at a rank, 1 to c, in each row."""
    if not _in_numpys_reach(scores_nc):
        return scores_nc.topk(rank, dim=1).values[:, -1]
    place = scores_nc.shape[1] - rank
    return torch.from_numpy(np.partition(scores_nc.numpy(), place, axis=1)[:, place].copy())


def ascending(numbers_P: Tensor) -> Tensor:
    """Returns the numbers sorted."""
    if not _in_numpys_reach(numbers_P):
        return numbers_P.sort().values
    return torch.from_numpy(np.sort(numbers_P.numpy()))


def natively(function: Callable[..., Any], *numbers: Tensor) -> Tensor:
    """Returns what a function of plain arithmetic makes of arrays of NumPy's or of tensors."""
    if not _in_numpys_reach(numbers[0]):
        return function(*numbers)
    return torch.from_numpy(function(*(part.numpy() for part in numbers)))


def _in_numpys_reach(numbers: Tensor) -> bool:
    return numbers.device.type == "cpu"
