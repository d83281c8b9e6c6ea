"""The exact float64 ranking of approximate float32 candidates.

Shapes: n queries, N gallery items, m candidates per query, P pairs, D dimensions.

Items are ranked by the squared Euclidean distance, summed in float64 over the differences of the
original vectors; equal distances are ordered by the gallery index. Computing this for all pairs
would be too expensive. A float32 product therefore proposes candidates, and a rigorous bound on its
rounding error shows which candidates are in their exact order, which ones must be compared again,
and for which queries a neighbor may be missing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

CHUNK_BYTES = 16 << 20
GPU_PAIRS = 1024, 1 << 16  # minimum and maximum number of distances that a GPU computes at once
FLOAT32_UNIT = 2.0**-24
TINIEST = 2.0**-120  # bound on the underflow error of float32 products, with a margin


def score_error(
    query_norm: Tensor,
    gallery_norm: float,
    dim: int,
    unit: float,
    *,
    squares_in_product: bool = False,
) -> Tensor:
    """Returns a bound on |computed − true| of scores −½‖q − g‖² = q·g − ½‖g‖² − ½‖q‖² (n).

    The bound on the product's error, dim · unit · ‖q‖‖g‖, holds for every order of summation
    (Higham, Accuracy and Stability of Numerical Algorithms, §3.1). With A = ½(‖q‖ + ‖g‖)², rounding
    q and g changes the score by at most 2A units, and rounding and adding the two squares by A
    units each.

    Args:
        query_norm: norms of the queries (n).
        gallery_norm: largest norm in the gallery.
        dim: length of the vectors.
        unit: unit roundoff of the arithmetic, 2^-24 for float32.
        squares_in_product: −½‖g‖² was a term of the product instead of being added to it.
    """
    product = dim * query_norm * gallery_norm
    if squares_in_product:
        product = product + 0.5 * (dim + 1) * (query_norm + gallery_norm) ** 2
    squares = 3.0 * (query_norm + gallery_norm) ** 2
    return 1.01 * unit * (product + squares) + dim * TINIEST


def squared_distances(
    query_ND: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor
) -> Tensor:
    """Returns ‖query[rows] − gallery[cols]‖² in float64, P values, in bounded memory.

    Equal pairs of vectors have bitwise equal distances: the sum runs along contiguous rows of
    chunks of the same shape, so that the kernel does not depend on the position of a pair.
    """
    pairs, dim = rows_P.numel(), query_ND.shape[1]
    chunk = max(1, CHUNK_BYTES // (128 * dim))
    if query_ND.is_cuda:
        minimum, chunk = GPU_PAIRS
        if 0 < pairs < minimum:  # for few rows, a GPU divides the sums among more threads
            more_P = rows_P.new_zeros(minimum - pairs)
            padded = torch.cat([rows_P, more_P]), torch.cat([cols_P, more_P])
            return squared_distances(query_ND, gallery_ND, *padded)[:pairs]
    out_P = torch.empty(pairs, dtype=torch.float64, device=query_ND.device)
    for start in range(0, pairs, chunk):
        # the last chunk overlaps the previous one instead of being shorter
        start = max(0, min(start, pairs - chunk))
        part = slice(start, start + chunk)
        difference_PD = query_ND.index_select(0, rows_P[part]).double()
        difference_PD -= gallery_ND.index_select(0, cols_P[part])
        out_P[part] = difference_PD.square_().sum(dim=1)
    return out_P


def sort_near_ties(
    query_nD: Tensor,
    gallery_ND: Tensor,
    scores_nm: Tensor,
    indices_nm: Tensor,
    error_n: Tensor,
    k: int,
    relevant_nm: Tensor | None = None,
) -> None:
    """Sorts the first k of m candidates, given in order of approximate scores, exactly, in place.

    Candidates whose scores differ by more than twice the error are in exact order. The others form
    runs; each run is sorted by exact distance, then by gallery index. Changes `indices_nm`.

    Args:
        query_nD: the queries.
        gallery_ND: the gallery.
        scores_nm: approximate scores, descending.
        indices_nm: gallery indices of the candidates.
        error_n: bound on the error of a query's scores.
        k: number of first ranks that must be exact.
        relevant_nm: mask of relevant candidates, if only the order of relevant and irrelevant
            candidates matters: runs of one kind are not sorted.
    """
    m = scores_nm.shape[1]
    close = _close_to_next(scores_nm, error_n, k)
    in_run = torch.zeros_like(scores_nm, dtype=torch.bool)
    in_run[:, :-1] = close
    in_run[:, 1:] |= close
    rows_P, ranks_P = in_run.nonzero(as_tuple=True)
    if not rows_P.numel():
        return
    starts_run = torch.ones_like(rows_P, dtype=torch.bool)
    starts_run[1:] = ~close[rows_P[1:], (ranks_P[1:] - 1).clamp_(min=0)] | (
        rows_P[1:] != rows_P[:-1]
    )
    run_P = starts_run.cumsum(dim=0)
    if relevant_nm is not None:
        hits = torch.bincount(run_P, weights=relevant_nm[rows_P, ranks_P])
        matters_P = ((hits > 0) & (hits < torch.bincount(run_P)))[run_P]
        rows_P, ranks_P, run_P = rows_P[matters_P], ranks_P[matters_P], run_P[matters_P]
    slots_P = rows_P * m + ranks_P
    cols_P = indices_nm[rows_P, ranks_P]
    distance_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
    order_P = lexical_order(run_P, distance_P, cols_P)
    indices_nm.view(-1)[slots_P] = cols_P[order_P]


def _close_to_next(scores_nm: Tensor, error_n: Tensor, k: int) -> Tensor:
    """Returns the mask of candidates that the next one may precede (n×(m − 1))."""
    close = scores_nm[:, :-1] - scores_nm[:, 1:] <= 2 * error_n[:, None]
    # candidates after the k-th matter only if they belong to its run
    close[:, k - 1 :] = close[:, k - 1 :].cumprod(dim=1).bool()
    return close


def lexical_order(*keys_P: Tensor) -> Tensor:
    """Returns the permutation that sorts by the first key, ties by the second, and so on."""
    if keys_P[0].device.type == "cpu":
        return torch.from_numpy(np.lexsort([key_P.numpy() for key_P in reversed(keys_P)]))
    order_P = torch.argsort(keys_P[-1], stable=True)
    for key_P in reversed(keys_P[:-1]):
        order_P = order_P[torch.argsort(key_P[order_P], stable=True)]
    return order_P
