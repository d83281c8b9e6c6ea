"""Exact search of the whole gallery in float64: slow, for the few queries that need it.

Shapes: n queries, N gallery items, M kept items, P pairs, D dimensions, k neighbors.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from dml.retrieval.exact_order import (
    CHUNK_BYTES,
    lexical_order,
    score_error,
    squared_distances,
)
from dml.retrieval.scaled_gallery import ScaledGallery


def surplus_duplicates(gallery_ND: Tensor, k: int) -> Tensor:
    """Returns the mask of gallery items that have at least k duplicates with lower indices (N).

    These can never be among the first k of a query, since ties go to the lower index. Without them
    even a gallery of equal embeddings is searched fast. The mask may miss some of them.
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
    index_N = torch.arange(N, device=gallery_ND.device)
    start_N = torch.where(new_group, index_N, 0).cummax(dim=0).values
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
    """Nearest neighbors of a few queries by float64 scores of the whole gallery.

    Args:
        gallery_ND: the gallery.
        scaled: the scaled gallery, for its center and scale.
        most: the largest k of all queries.
        memory_bytes: bound on the working memory.
    """

    def __init__(
        self, gallery_ND: Tensor, scaled: ScaledGallery, most: int, memory_bytes: int
    ) -> None:
        self.gallery_ND, self.center_D, self.scale = gallery_ND, scaled.center, scaled.scale
        self.most, self.memory_bytes = most, memory_bytes

    @cached_property
    def kept(self) -> Tensor:
        """Indices of the gallery items without surplus duplicates (M)."""
        return (~surplus_duplicates(self.gallery_ND, self.most + 1)).nonzero().squeeze(1)

    def nearest(self, query_nD: Tensor, self_n: Tensor | None, k: int) -> Tensor:
        """Returns the gallery indices of the exact k nearest items (n×k), without `self_n`."""
        out_nk = torch.empty(len(query_nD), k, dtype=torch.long, device=query_nD.device)
        rows = max(1, self.memory_bytes // (64 * len(self.kept)))
        for start in range(0, len(query_nD), rows):
            part = slice(start, start + rows)
            excluded = None if self_n is None else self_n[part]
            out_nk[part] = self._nearest_of_chunk(query_nD[part], excluded, k)
        return out_nk

    def _nearest_of_chunk(self, query_nD: Tensor, self_n: Tensor | None, k: int) -> Tensor:
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
        if self_n is not None:
            scores_nM.masked_fill_(self_n[:, None] == self.kept, -torch.inf)
        error_n = score_error(query64_nD.norm(dim=1), float(largest), D, 2.0**-53)
        kth_n = scores_nM.topk(k, dim=1).values[:, -1]
        rows_P, kept_P = (scores_nM >= (kth_n - 2 * error_n)[:, None]).nonzero(as_tuple=True)
        cols_P = self.kept[kept_P]
        order_P = lexical_order(
            rows_P, squared_distances(query_nD, self.gallery_ND, rows_P, cols_P), cols_P
        )
        counts_n = torch.bincount(rows_P, minlength=n)
        first_n = counts_n.cumsum(dim=0) - counts_n
        slots_nk = first_n[:, None] + torch.arange(k, device=query_nD.device)
        return cols_P[order_P[slots_nk]]
