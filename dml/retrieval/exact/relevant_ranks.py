"""Ranks of the nearest relevant items, by counting closer items instead of listing them.

Recall@1000 needs only this rank. Counting scores above a threshold per query is cheap, while a list
of a thousand neighbors costs ten times as much as the product.

Shapes: n queries, N gallery items, c items of one tile, P pairs, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dml.retrieval.exact.order import lexical_order, squared_distances
from dml.retrieval.exact.scaled_gallery import ScaledGallery

SLACK = 1.2  # margin for the rounding of the thresholds


class ClassMembers:
    """Gallery items by class.

    Args:
        classes_N: class of each item, 0..C−1.
    """

    def __init__(self, classes_N: Tensor) -> None:
        self.order = classes_N.argsort(stable=True)
        self.counts = torch.bincount(classes_N)
        self.starts = self.counts.cumsum(dim=0) - self.counts

    def pairs(self, classes_n: Tensor) -> tuple[Tensor, Tensor]:
        """Returns all pairs of a query, 0..n−1, and a gallery item of its class (P, P)."""
        counts_n = self.counts[classes_n]
        rows_P = torch.arange(len(classes_n), device=classes_n.device).repeat_interleave(counts_n)
        begin_n = self.starts[classes_n] - (counts_n.cumsum(dim=0) - counts_n)
        return rows_P, self.order[begin_n[rows_P] + torch.arange(len(rows_P), device=rows_P.device)]


def sort_relevant(
    query_nD: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor, self_n: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sorts the relevant items of each query by exact distance.

    Args:
        query_nD: queries with a relevant item.
        gallery_ND: the gallery.
        rows_P: query index of each pair, ascending.
        cols_P: gallery index of a relevant item of the query.
        self_n: gallery index of each query itself, which is left out; −1 for none.

    Returns:
        Query index, squared distance and gallery index of each pair (P); start and number of the
        pairs of each query (n).
    """
    others = cols_P != self_n[rows_P]
    rows_P, cols_P = rows_P[others], cols_P[others]
    squared_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
    order_P = lexical_order(rows_P, squared_P, cols_P)
    counts_n = torch.bincount(rows_P, minlength=len(query_nD))
    return rows_P, squared_P[order_P], cols_P[order_P], counts_n.cumsum(dim=0) - counts_n, counts_n


def count_closer(
    gallery: ScaledGallery,
    gallery_ND: Tensor,
    query_nD: Tensor,
    pairs: tuple[Tensor, Tensor],
    self_n: Tensor,
    limit: int,
    multiply: Callable[[Tensor, Tensor, Tensor], None],
) -> Tensor:
    """Returns the number of gallery items before each query's nearest relevant item (n).

    Args:
        gallery: the scaled gallery.
        gallery_ND: the gallery.
        query_nD: queries with a relevant item.
        pairs: query index, ascending, and gallery index of all relevant items (P, P).
        self_n: gallery index of each query itself, which is not counted; −1 for none.
        limit: numbers from this on are lower bounds.
        multiply: writes a·bᵀ of float32 rows, see `PlainSearch.multiply`.
    """
    _, squared_P, cols_P, first_n, _ = sort_relevant(query_nD, gallery_ND, *pairs, self_n)
    target_n, index_n = squared_P[first_n], cols_P[first_n]
    query_nE = gallery.queries(query_nD)
    error_n = SLACK * gallery.error(query_nE[:, -1])
    score_n = -0.5 * (target_n * gallery.scale) * gallery.scale  # the square may overflow
    above_n, below_n = (score_n + error_n).float(), (score_n - error_n).float()
    closer_n = -((self_n >= 0) & ((target_n > 0) | (self_n < index_n))).long()  # not the query
    active = torch.arange(len(query_nE), device=query_nE.device)
    buffer = query_nE.new_empty(len(query_nE), gallery.tile)
    for first in range(0, len(gallery.rows), gallery.tile):
        active = active[closer_n[active] < limit]
        if not len(active):
            break
        tile = gallery.rows[first : first + gallery.tile]
        scores = buffer[: len(active)]
        multiply(query_nE[active], tile, scores)
        # candidates, of which those between the bounds are compared exactly
        row_P, column_P = (scores > below_n[active, None]).nonzero(as_tuple=True)
        rows_P = active[row_P]
        surely_P = scores[row_P, column_P] > above_n[rows_P]
        closer_n += torch.bincount(rows_P[surely_P], minlength=len(closer_n))
        rows_P, cols_P = rows_P[~surely_P], gallery.order[column_P[~surely_P] + first]
        squared_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
        target_P = target_n[rows_P]
        tied_P = (squared_P == target_P) & (cols_P < index_n[rows_P])
        precedes_P = (squared_P < target_P) | tied_P
        closer_n += torch.bincount(rows_P[precedes_P], minlength=len(closer_n))
    return closer_n
