"""Turns approximate float32 candidates into the exact float64 ranking.

Shapes: n queries, N gallery items, m candidates per query, P pairs, D dimensions.

The ranking that counts is by the squared Euclidean distance summed in float64 over differences of
the vectors as given; equal distances are ordered by the gallery index. Computing it for all pairs
would cost far too much, so a float32 product proposes candidates, and a rigorous bound on its
rounding error says which of them are already in their true order, which ones must be compared
again, and for which queries the candidates may miss a neighbor.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

CHUNK_BYTES = 16 << 20
FLOAT32_UNIT = 2.0**-24
TINIEST = 2.0**-120  # what products of float32 lose where they underflow, with room to spare


def score_error(
    query_norm: Tensor, gallery_norm: float, dim: int, unit: float, *, one_product: bool = False
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
        one_product: −½‖g‖² was a term of the product instead of being added to it.
    """
    product = dim * query_norm * gallery_norm
    if one_product:
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
    close = scores_nm[:, :-1] - scores_nm[:, 1:] <= 2 * error_n[:, None]
    # candidates after the k-th matter only while they belong to its run
    close[:, k - 1 :] = close[:, k - 1 :].cumprod(dim=1).bool()
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


def lexical_order(*keys_P: Tensor) -> Tensor:
    """Returns the permutation that sorts by the first key, ties by the second, and so on."""
    if keys_P[0].device.type == "cpu":
        return torch.from_numpy(np.lexsort([key_P.numpy() for key_P in reversed(keys_P)]))
    order_P = torch.argsort(keys_P[-1], stable=True)
    for key_P in reversed(keys_P[:-1]):
        order_P = order_P[torch.argsort(key_P[order_P], stable=True)]
    return order_P


def surplus_duplicates(gallery_ND: Tensor, k: int) -> Tensor:
    """Marks gallery items that at least k identical ones with lower indices precede.

    They can never be among the first k of any query, since ties go to the lower index. Without them
    even a gallery collapsed to one point is searched quickly. Finding fewer than all is allowed.
    """
    N, D = gallery_ND.shape
    key_N = torch.empty(N, dtype=torch.float64, device=gallery_ND.device)
    weights_D = torch.arange(1, D + 1, dtype=torch.float64, device=gallery_ND.device).sqrt()
    chunk = max(1, CHUNK_BYTES // (16 * D))
    for start in range(0, N, chunk):
        key_N[start : start + chunk] = (gallery_ND[start : start + chunk] * weights_D).sum(dim=1)
    order_N = torch.argsort(key_N, stable=True)
    sorted_N = key_N[order_N]
    new_group = torch.ones_like(sorted_N, dtype=torch.bool)
    new_group[1:] = sorted_N[1:] != sorted_N[:-1]
    place_N = torch.arange(N, device=gallery_ND.device)
    start_N = torch.where(new_group, place_N, 0).cummax(dim=0).values
    equal_N = torch.empty_like(new_group)
    for start in range(0, N, chunk):
        part = slice(start, start + chunk)
        same = gallery_ND[order_N[part]] == gallery_ND[order_N[start_N[part]]]
        equal_N[part] = same.all(dim=1)
    before_N = equal_N.cumsum(dim=0) - equal_N.long()
    surplus = torch.zeros_like(equal_N)
    surplus[order_N] = equal_N & (before_N - before_N[start_N] >= k)
    return surplus


class FullSearch:
    """Exact search of the whole gallery in float64: slow, for the few hard queries.

    Args:
        gallery_ND: the gallery.
        center_D: a point (float32 or float64) near the data; with it as the origin rounding errors
            are small.
        scale: a power of two that brings all norms around it into [0, 1].
        most: the largest k that will be asked for.
        memory_bytes: bound on the working memory.
    """

    def __init__(
        self, gallery_ND: Tensor, center_D: Tensor, scale: float, most: int, memory_bytes: int
    ) -> None:
        self.gallery_ND = gallery_ND
        self.center_D = center_D
        self.scale = scale
        self.most = most
        self.memory_bytes = memory_bytes

    @cached_property
    def kept(self) -> Tensor:
        """Gallery items that can be among the first: one more than `most` of each kind."""
        return (~surplus_duplicates(self.gallery_ND, self.most + 1)).nonzero().squeeze(1)

    def nearest(self, query_nD: Tensor, own_n: Tensor | None, k: int) -> Tensor:
        """Returns the exact k nearest (n×k), each query's own gallery index left out if given."""
        out_nk = torch.empty(len(query_nD), k, dtype=torch.long, device=query_nD.device)
        rows = max(1, self.memory_bytes // (64 * len(self.kept)))
        for start in range(0, len(query_nD), rows):
            part = slice(start, start + rows)
            own = None if own_n is None else own_n[part]
            out_nk[part] = self._rows(query_nD[part], own, k)
        return out_nk

    def _rows(self, query_nD: Tensor, own_n: Tensor | None, k: int) -> Tensor:
        n, D = query_nD.shape
        query64_nD = (query_nD.double() - self.center_D) * self.scale
        scores_nM = torch.empty(n, len(self.kept), dtype=torch.float64, device=query_nD.device)
        largest = torch.zeros((), dtype=torch.float64, device=query_nD.device)
        chunk = max(1, CHUNK_BYTES // (16 * D))
        for start in range(0, len(self.kept), chunk):
            part = slice(start, start + chunk)
            gallery64 = (self.gallery_ND[self.kept[part]].double() - self.center_D) * self.scale
            bias = gallery64.square().sum(dim=1)
            scores_nM[:, part] = query64_nD @ gallery64.T - 0.5 * bias
            largest = torch.maximum(largest, bias.max().sqrt())
        if own_n is not None:
            scores_nM.masked_fill_(own_n[:, None] == self.kept, -torch.inf)
        error_n = score_error(query64_nD.norm(dim=1), float(largest), D, 2.0**-53)
        kth_n = scores_nM.topk(k, dim=1).values[:, -1]
        rows_P, places_P = (scores_nM >= (kth_n - 2 * error_n)[:, None]).nonzero(as_tuple=True)
        cols_P = self.kept[places_P]
        order_P = lexical_order(
            rows_P, squared_distances(query_nD, self.gallery_ND, rows_P, cols_P), cols_P
        )
        counts_n = torch.bincount(rows_P, minlength=n)
        first_n = counts_n.cumsum(dim=0) - counts_n
        slots_nk = first_n[:, None] + torch.arange(k, device=query_nD.device)
        return cols_P[order_P[slots_nk]]
