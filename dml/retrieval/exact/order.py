"""The exact float64 ranking of approximate float32 candidates.

Shapes: n queries, N gallery items, m candidates per query, P pairs, D dimensions.

Items are ranked by the squared Euclidean distance, summed in float64 over the differences of the
original vectors; equal distances are ordered by the gallery index. Computing this for all pairs
would be too expensive. A float32 product therefore proposes candidates, and a rigorous bound on its
rounding error shows which candidates are in their exact order, which ones must be compared again,
and for which queries a neighbor may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

CHUNK_BYTES = 4 << 20
GPU_PAIRS = 1024, 1 << 16  # minimum and maximum number of distances that a GPU computes at once
FLOAT32_UNIT = 2.0**-24
TINIEST = 2.0**-120  # bound on the underflow error of float32 products, with a margin
LARGEST_REACH = 2.0**500  # float64 holds the squares of longer vectors, or of 1/this, no more


def find_scale(reach: float) -> float:
    """Returns a power of two that scales vectors to norms of at most 1.

    Args:
        reach: at least the largest norm; 0: all vectors are equal.

    Raises:
        ValueError: squared distances are too large or too small for float64.
    """
    if reach and not 1 / LARGEST_REACH <= reach <= LARGEST_REACH:
        raise ValueError(
            f"values are {reach:.0e} apart, and float64 cannot hold their squared distances; "
            f"multiply the embeddings by a number"
        )
    return math.ldexp(1.0, -math.frexp(reach)[1])


def score_error(query_norm: Tensor, gallery_norm: float | Tensor, dim: int, unit: float) -> Tensor:
    """Returns a bound on |computed − true| of scores −½‖q − g‖² = q·g − ½‖g‖² − ½‖q‖² (n).

    With A = ½(‖q‖ + ‖g‖)², the terms of this sum have absolute values of at most A in total, so
    that its error is at most (dim + 2)·A units for every order of summation (Higham, Accuracy and
    Stability of Numerical Algorithms, §3.1). Rounding q and g changes the score by at most 2A
    units, rounding their squares by A.

    Args:
        query_norm: norms of the queries (n).
        gallery_norm: largest norm in the gallery; or the norms of single items, in a shape that
            matches the queries' (then the bound has their joint shape).
        dim: length of the vectors.
        unit: unit roundoff of the arithmetic, 2^-24 for float32.
    """
    A = 0.5 * (query_norm + gallery_norm) ** 2
    return 1.01 * unit * (dim + 5) * A + dim * TINIEST


def squared_distances(
    query_ND: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor
) -> Tensor:
    """Returns ‖query[rows] − gallery[cols]‖² in float64, P values, in bounded memory.

    Equal pairs of vectors have bitwise equal distances: the sum runs along contiguous rows of
    chunks of the same shape, so that the kernel does not depend on the position of a pair.
    """
    pairs, dim = rows_P.numel(), query_ND.shape[1]
    chunk = max(1, CHUNK_BYTES // (32 * dim))
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
    close = scores_nm[:, :-1] - scores_nm[:, 1:] <= 2 * error_n[:, None]
    # candidates after the k-th matter only if they belong to its run
    close[:, k - 1 :] = close[:, k - 1 :].cumprod(dim=1).bool()
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


def lexical_order(*keys_P: Tensor) -> Tensor:
    """Returns the permutation that sorts by the first key, ties by the second, and so on."""
    if keys_P[0].device.type == "cpu":
        return torch.from_numpy(np.lexsort([key_P.numpy() for key_P in reversed(keys_P)]))
    order_P = torch.argsort(keys_P[-1], stable=True)
    for key_P in reversed(keys_P[:-1]):
        order_P = order_P[torch.argsort(key_P[order_P], stable=True)]
    return order_P


def nearest_of_all(
    query_nD: Tensor,
    gallery_ND: Tensor,
    kept_M: Tensor,
    scaled: Callable[[Tensor], Tensor],
    self_n: Tensor,
    k: int,
) -> Tensor:
    """Returns the gallery indices of the exact k nearest items (n×k), by float64 scores.

    This is slow, for the few queries whose candidates may lack a neighbor.

    Args:
        query_nD: the queries.
        gallery_ND: the gallery.
        kept_M: gallery indices without surplus duplicates.
        scaled: centers and scales vectors, as float64.
        self_n: gallery indices of the queries, which are last; −1 if not in the gallery.
        k: number of neighbors.
    """
    n, D = query_nD.shape
    query64_nD = scaled(query_nD)
    scores_nM = query64_nD.new_empty(n, len(kept_M))
    largest, step = 0.0, max(1, CHUNK_BYTES // (16 * D))
    for start in range(0, len(kept_M), step):
        part = slice(start, start + step)
        gallery64 = scaled(gallery_ND.index_select(0, kept_M[part]))
        square = gallery64.square().sum(dim=1)
        scores_nM[:, part] = query64_nD @ gallery64.T - 0.5 * square
        largest = max(largest, math.sqrt(float(square.max())))
    scores_nM.masked_fill_(self_n[:, None] == kept_M, -torch.inf)
    error_n = score_error(query64_nD.norm(dim=1), largest, D, 2.0**-53)
    kth_n = scores_nM.topk(k, dim=1).values[:, -1]
    rows_P, kept_P = (scores_nM >= (kth_n - 2 * error_n)[:, None]).nonzero(as_tuple=True)
    cols_P = kept_M[kept_P]
    squared_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
    squared_P.masked_fill_(cols_P == self_n[rows_P], torch.inf)
    cols_P = cols_P[lexical_order(rows_P, squared_P, cols_P)]
    counts_n = torch.bincount(rows_P, minlength=n)
    first_n = counts_n.cumsum(dim=0) - counts_n
    return cols_P[first_n[:, None] + torch.arange(k, device=query_nD.device)]


def without_surplus_duplicates(gallery_ND: Tensor, k: int) -> Tensor:
    """Returns the indices of gallery items without those that equal k items of lower indices (M).

    These can never be among the first k of a query, since ties go to the lower index. Without them
    even a gallery of equal embeddings, of a collapsed network, is searched fast. Some may remain.
    """
    order_N, first_N = _group_equal(gallery_ND)
    place_N = torch.arange(len(order_N), device=gallery_ND.device)
    return order_N[place_N - first_N < k].sort().values


def first_equal_items(gallery_ND: Tensor) -> Tensor:
    """Returns for each gallery item the index of an equal one, the same for most equal items (N).

    That of the lowest index unless different items have equal weighted sums.
    """
    order_N, first_N = _group_equal(gallery_ND)
    return torch.empty_like(order_N).scatter_(0, order_N, order_N[first_N])


def _group_equal(gallery_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Returns an order in which equal items are neighbors, and the place of the first equal one."""
    N, D = gallery_ND.shape
    weights_D = torch.arange(1, D + 1, dtype=torch.float64, device=gallery_ND.device).sqrt()
    step = max(1, CHUNK_BYTES // (16 * D))
    key_N = weights_D.new_empty(N)
    for start in range(0, N, step):
        part = slice(start, start + step)
        torch.sum(gallery_ND[part] * weights_D, dim=1, out=key_N[part])
    order_N = key_N.argsort(stable=True)  # equal items are neighbors in this order
    same_N = torch.zeros(N, dtype=torch.bool, device=gallery_ND.device)
    for start in range(1, N, step):
        items, previous = order_N[start : start + step], order_N[start - 1 : start - 1 + step]
        equal = gallery_ND[items] == gallery_ND[previous[: len(items)]]
        same_N[start : start + step] = equal.all(dim=1)
    place_N = torch.arange(N, device=gallery_ND.device)
    first_N = place_N.masked_fill(same_N, 0).cummax(dim=0).values
    return order_N, first_N
