"""Turns approximate float32 candidates into the exact float64 ranking.

Shapes: n queries, N gallery items, m candidates per query, P pairs, D dimensions.

The ranking is by the squared Euclidean distance summed in float64 over differences of
the vectors as given; equal distances are ordered by the gallery index. Computing it for all pairs
would be far too expensive, so a float32 product proposes candidates, and a rigorous bound on its
rounding error says which of them are in their true order, which ones must be compared again, and
for which queries the candidates may miss a neighbor.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

CHUNK_BYTES = 16 << 20
GPU_PAIRS = 1024, 1 << 16  # fewest and most whose distances a GPU computes at once
FLOAT32_UNIT = 2.0**-24
TINIEST = 2.0**-120  # what products of float32 lose where they underflow, with room to spare


def score_error(
    query_norm: Tensor,
    gallery_norm: float,
    dim: int,
    unit: float,
    *,
    squares_in_product: bool = False,
) -> Tensor:
    """Bounds |computed − true| for scores −½‖q − g‖² = q·g − ½‖g‖² − ½‖q‖².

    The product holds for every order of summation: dim · unit · ‖q‖‖g‖ (Higham, Accuracy and
    Stability of Numerical Algorithms, §3.1). With A = ½(‖q‖ + ‖g‖)², rounding q and g moves the
    score by at most 2A units, rounding the two squares and adding each of them by A each.

    Args:
        query_norm: n norms.
        gallery_norm: the largest norm in the gallery.
        dim: length of the vectors.
        unit: unit roundoff of the arithmetic, 2^-24 for float32.
        squares_in_product: −½‖g‖² was a term of the product instead of being added to it.
    """
    product = dim * query_norm * gallery_norm
    if squares_in_product:
        product = product + 0.5 * (dim + 1) * (query_norm + gallery_norm) ** 2
    rest = 3.0 * (query_norm + gallery_norm) ** 2
    return 1.01 * unit * (product + rest) + dim * TINIEST


def squared_distances(
    query_ND: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor
) -> Tensor:
    """Returns ‖query[rows] − gallery[cols]‖² in float64, P values, in bounded memory.

    Equal pairs of vectors get bitwise equal distances: the sum runs along contiguous rows of chunks
    that all have one shape, so that no choice of kernel depends on where a pair stands.
    """
    pairs, dim = rows_P.numel(), query_ND.shape[1]
    chunk = max(1, CHUNK_BYTES // (128 * dim))
    if query_ND.is_cuda:
        least, chunk = GPU_PAIRS
        if 0 < pairs < least:  # of few rows, a GPU divides the sums among more threads
            more_P = rows_P.new_zeros(least - pairs)
            padded = torch.cat([rows_P, more_P]), torch.cat([cols_P, more_P])
            return squared_distances(query_ND, gallery_ND, *padded)[:pairs]
    out_P = torch.empty(pairs, dtype=torch.float64, device=query_ND.device)
    for start in range(0, pairs, chunk):
        # the last chunk reaches back over pairs already done instead of being shorter
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
    """Puts the first k of m candidates, sorted by approximate score, into their true order.

    Candidates whose scores differ by more than twice the error are in true order. The others
    form runs; each run is sorted by exact distance, then gallery index. Changes `indices_nm`.

    Args:
        query_nD: the queries.
        gallery_ND: the gallery.
        scores_nm: approximate scores, descending.
        indices_nm: gallery indices of the candidates.
        error_n: bound on the error of a query's scores.
        k: how many places count.
        relevant_nm: which candidates are relevant, if that is all that matters about them: runs of
            one kind are left as they are.
    """
    m = scores_nm.shape[1]
    close = _close_to_next(scores_nm, error_n, k)
    in_run = torch.zeros_like(scores_nm, dtype=torch.bool)
    in_run[:, :-1] = close
    in_run[:, 1:] |= close
    rows_P, places_P = in_run.nonzero(as_tuple=True)
    if not rows_P.numel():
        return
    starts_run = torch.ones_like(rows_P, dtype=torch.bool)
    starts_run[1:] = ~close[rows_P[1:], (places_P[1:] - 1).clamp_(min=0)] | (
        rows_P[1:] != rows_P[:-1]
    )
    run_P = starts_run.cumsum(dim=0)
    if relevant_nm is not None:
        hits = torch.bincount(run_P, weights=relevant_nm[rows_P, places_P])
        matters_P = ((hits > 0) & (hits < torch.bincount(run_P)))[run_P]
        rows_P, places_P, run_P = rows_P[matters_P], places_P[matters_P], run_P[matters_P]
    slots_P = rows_P * m + places_P
    cols_P = indices_nm[rows_P, places_P]
    distance_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
    order_P = lexical_order(run_P, distance_P, cols_P)
    indices_nm.view(-1)[slots_P] = cols_P[order_P]


def _close_to_next(scores_nm: Tensor, error_n: Tensor, k: int) -> Tensor:
    """Returns which candidates the next one may precede (n×(m − 1))."""
    close = scores_nm[:, :-1] - scores_nm[:, 1:] <= 2 * error_n[:, None]
    # candidates after the k-th matter only while they belong to its run
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
