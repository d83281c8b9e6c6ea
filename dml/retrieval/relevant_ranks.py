"""Ranks of the nearest relevant items, by counting closer items instead of listing them.

Recall@1000 needs only this rank. Counting scores above a threshold per query is cheap, while a list
of a thousand neighbors costs ten times as much as the product.

Shapes: n queries, N gallery items, c items of one tile, P pairs, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dml.retrieval.cpu_search.running_top import above_threshold
from dml.retrieval.exact_order import FLOAT32_UNIT, lexical_order, score_error, squared_distances
from dml.retrieval.scaled_gallery import ScaledGallery, norms

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


@dataclass(frozen=True)
class Targets:
    """Queries with their target: the gallery item before which items are counted.

    Attributes:
        queries: n×D.
        squared_n: squared distance of the target (float64).
        index_n: gallery index of the target, which resolves ties.
        self_n: gallery index of each query itself, which is not counted, or None.
    """

    queries: Tensor
    squared_n: Tensor
    index_n: Tensor
    self_n: Tensor | None

    def __len__(self) -> int:
        return len(self.queries)

    def preceded_by(self, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor) -> Tensor:
        """Returns whether items precede the targets of queries in the exact ranking (P).

        Args:
            gallery_ND: the gallery.
            rows_P: index of the query, 0..n−1.
            cols_P: gallery index of the item.
        """
        squared_P = squared_distances(self.queries, gallery_ND, rows_P, cols_P)
        target_P = self.squared_n[rows_P]
        tied_P = (squared_P == target_P) & (cols_P < self.index_n[rows_P])
        return (squared_P < target_P) | tied_P


def nearest_relevant(
    query_nD: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor, self_n: Tensor | None
) -> Targets:
    """Returns the nearest relevant item of each query.

    Args:
        query_nD: queries with a relevant item.
        gallery_ND: the gallery.
        rows_P: query index of each pair, ascending.
        cols_P: gallery index of a relevant item of the query.
        self_n: gallery index of each query itself, or None.
    """
    _, squared_P, cols_P, first_n, _ = sort_relevant(query_nD, gallery_ND, rows_P, cols_P, self_n)
    return Targets(query_nD, squared_P[first_n], cols_P[first_n], self_n)


def sort_relevant(
    query_nD: Tensor, gallery_ND: Tensor, rows_P: Tensor, cols_P: Tensor, self_n: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Sorts the relevant items of each query by exact distance; see `nearest_relevant`.

    Returns:
        Query index, squared distance and gallery index of each pair (P); start and number of the
        pairs of each query (n).
    """
    if self_n is not None:
        others = cols_P != self_n[rows_P]
        rows_P, cols_P = rows_P[others], cols_P[others]
    squared_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
    order_P = lexical_order(rows_P, squared_P, cols_P)
    counts_n = torch.bincount(rows_P, minlength=len(query_nD))
    return rows_P, squared_P[order_P], cols_P[order_P], counts_n.cumsum(dim=0) - counts_n, counts_n


def count_closer(
    gallery: ScaledGallery, gallery_ND: Tensor, targets: Targets, limit: int
) -> Tensor:
    """Returns the number of gallery items before each query's target in the exact ranking.

    Args:
        gallery: the scaled gallery.
        gallery_ND: the gallery.
        targets: the queries and their targets.
        limit: counts are exact below this.

    Returns:
        n counts; from `limit` on, lower bounds.
    """
    centered_nD, half_square_n = gallery.center_queries(targets.queries)
    above_n, below_n = _score_bounds(gallery, centered_nD, targets.squared_n)
    self_row_n = None if targets.self_n is None else gallery.place[targets.self_n]
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
        if self_row_n is not None:
            column_n = self_row_n[active] - first
            inside = ((column_n >= 0) & (column_n < gallery.tile)).nonzero().squeeze(1)
            scores[inside, column_n[inside]] = -torch.inf
        # candidates, of which those between the bounds are compared exactly
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
    """Returns scores (n, n) above and below which an item is closer or farther than a distance."""
    error_n = score_error(norms(centered_nD), gallery.largest, centered_nD.shape[1], FLOAT32_UNIT)
    score_n = -0.5 * (squared_n * gallery.scale) * gallery.scale  # the square may overflow
    return (score_n + SLACK * error_n).float(), (score_n - SLACK * error_n).float()


def _entries_above(scores_nc: Tensor, threshold_n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns rows, columns and values (P each) of the scores above the thresholds of rows."""
    if scores_nc.device.type == "cpu":
        selected = above_threshold(scores_nc.numpy(), threshold_n.numpy())
        assert selected is not None  # there is no limit
        row_P, column_P, score_P = map(torch.from_numpy, selected)
        return row_P, column_P, score_P
    row_P, column_P = (scores_nc > threshold_n[:, None]).nonzero(as_tuple=True)
    return row_P, column_P, scores_nc[row_P, column_P]
