"""Ranks of the nearest relevant items, by counting the closer items instead of listing them.

Recall@1000 needs only this rank. Counting scores above one threshold per query is cheap, while a
list of a thousand neighbors costs ten times as much as the product.

Shapes: n queries, N gallery items, c items of one tile, P pairs, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dml.retrieval.cpu_search.running_top import above_threshold
from dml.retrieval.exact_order import FLOAT32_UNIT, lexical_order, score_error, squared_distances
from dml.retrieval.scaled_gallery import ScaledGallery, norms

SLACK = 1.2  # room for rounding the thresholds themselves


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
        """Returns each query's number, 0..n−1, with each gallery item of its class (P, P)."""
        counts_n = self.counts[classes_n]
        rows_P = torch.arange(len(classes_n), device=classes_n.device).repeat_interleave(counts_n)
        begin_n = self.starts[classes_n] - (counts_n.cumsum(dim=0) - counts_n)
        return rows_P, self.order[begin_n[rows_P] + torch.arange(len(rows_P), device=rows_P.device)]


@dataclass(frozen=True)
class Targets:
    """Queries, each with the gallery item up to which its ranking is counted.

    Attributes:
        queries: n×D.
        squared_n: squared distance of that item (float64).
        index_n: its gallery index, which decides ties.
        own_n: gallery index of each query itself, which does not count, or None.
    """

    queries: Tensor
    squared_n: Tensor
    index_n: Tensor
    own_n: Tensor | None

    def __len__(self) -> int:
        return len(self.queries)

    def preceded_by(self, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor) -> Tensor:
        """Returns which items precede the target of a query in its exact ranking (P).

        Args:
            gallery_ND: the gallery.
            rows_P: number of the query, 0..n−1.
            cols_P: gallery index of the item.
        """
        squared_P = squared_distances(self.queries, gallery_ND, rows_P, cols_P)
        target_P = self.squared_n[rows_P]
        tied_P = (squared_P == target_P) & (cols_P < self.index_n[rows_P])
        return (squared_P < target_P) | tied_P


def nearest_relevant(
    query_nD: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor, own_n: Tensor | None
) -> Targets:
    """Returns each query's nearest relevant item.

    Args:
        query_nD: queries that have one.
        gallery_ND: the gallery.
        rows_P: query number of each pair, ascending.
        cols_P: a relevant gallery item of that query.
        own_n: gallery index of each query itself, or None.
    """
    _, squared_P, cols_P, first_n, _ = sort_relevant(query_nD, gallery_ND, rows_P, cols_P, own_n)
    return Targets(query_nD, squared_P[first_n], cols_P[first_n], own_n)


def sort_relevant(
    query_nD: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor, own_n: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sorts the relevant items of each query by their exact distance; arguments as above.

    Returns:
        Query number, squared distance and gallery index of each pair (P); where the pairs of each
        query begin, and their number (n).
    """
    if own_n is not None:
        others = cols_P != own_n[rows_P]
        rows_P, cols_P = rows_P[others], cols_P[others]
    squared_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
    order_P = lexical_order(rows_P, squared_P, cols_P)
    counts_n = torch.bincount(rows_P, minlength=len(query_nD))
    return rows_P, squared_P[order_P], cols_P[order_P], counts_n.cumsum(dim=0) - counts_n, counts_n


def count_closer(
    gallery: ScaledGallery, gallery_ND: Tensor, targets: Targets, limit: int
) -> Tensor:
    """Counts the gallery items that precede each query's target in its exact ranking.

    Args:
        gallery: the gallery made ready for products.
        gallery_ND: the gallery.
        targets: the queries and their targets.
        limit: how far to count.

    Returns:
        n counts; from `limit` on they only say that there are at least as many.
    """
    centered_nD, half_square_n = gallery.center_queries(targets.queries)
    above_n, below_n = _score_bounds(gallery, centered_nD, targets.squared_n)
    own_row_n = None if targets.own_n is None else gallery.place[targets.own_n]
    closer_n = torch.zeros(len(targets), dtype=torch.long, device=gallery_ND.device)
    active = torch.arange(len(targets), device=gallery_ND.device)
    buffer = centered_nD.new_empty(len(targets), gallery.tile)
    for first in range(0, len(gallery.rows), gallery.tile):
        active = active[closer_n[active] < limit]
        if not len(active):
            break
        tile = slice(first, first + gallery.tile)
        scores = gallery.scores(
            centered_nD[active], half_square_n[active], tile, buffer[: len(active)]
        )
        if own_row_n is not None:
            own = own_row_n[active] - first
            inside = ((own >= 0) & (own < gallery.tile)).nonzero().squeeze(1)
            scores[inside, own[inside]] = -torch.inf
        # the farther from the query, the fewer items lie closer
        row_P, column_P, score_P = _entries_above(scores, below_n[active])
        query_P = active[row_P]
        surely_P = score_P > above_n[query_P]
        closer_n += torch.bincount(query_P[surely_P], minlength=len(closer_n))
        query_P, column_P = query_P[~surely_P], column_P[~surely_P]
        precedes_P = targets.preceded_by(gallery_ND, query_P, gallery.order[column_P + first])
        closer_n += torch.bincount(query_P[precedes_P], minlength=len(closer_n))
    return closer_n


def _score_bounds(
    gallery: ScaledGallery, centered_nD: Tensor, squared_n: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns scores (n, n) above and below which an item surely is closer or farther than that."""
    error_n = score_error(norms(centered_nD), gallery.largest, centered_nD.shape[1], FLOAT32_UNIT)
    score_n = -0.5 * (squared_n * gallery.scale) * gallery.scale  # the square may overflow
    return (score_n + SLACK * error_n).float(), (score_n - SLACK * error_n).float()


def _entries_above(scores_nc: Tensor, threshold_n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns rows, columns and values (P each) of the scores above their row's threshold."""
    if scores_nc.device.type == "cpu":
        selected = above_threshold(scores_nc.numpy(), threshold_n.numpy())
        assert selected is not None  # there is no limit
        row_P, column_P, score_P = map(torch.from_numpy, selected)
        return row_P, column_P, score_P
    row_P, column_P = (scores_nc > threshold_n[:, None]).nonzero(as_tuple=True)
    return row_P, column_P, scores_nc[row_P, column_P]
