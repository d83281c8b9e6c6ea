"""The exact ranking of the whole gallery for each query, of which only relevance is kept.

Scores are float64 products, so that one far item would hide the order of near ones: where a bound
on the rounding error leaves the order of relevant and irrelevant items open, they are ordered by
their differences, as in `dml.retrieval.exact.order`.

Shapes: n queries of one chunk, N gallery items, D dimensions, P items whose order is open.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dml.retrieval.exact.order import (
    find_scale,
    first_equal_items,
    lexical_order,
    score_error,
    squared_distances,
)

FLOAT64_UNIT = 2.0**-53
PAIR_BYTES = 64  # memory of a query and an item
PARTS = 8  # of a chunk, which are ordered one after the other: a pair then needs 200 bytes
SAMPLE = 1024  # items whose median is the center


class FullRanking:
    """Ranks a gallery by exact distance, ties by index.

    Args:
        query_BD: the queries.
        gallery_ND: the gallery, which may be the same tensor.
        self_B: position of each query in the gallery, which is ranked last; −1 for none.
        memory_bytes: bound on the working buffers, in addition to float64 copies of the vectors.

    Raises:
        ValueError: see `find_scale`.
    """

    def __init__(
        self, query_BD: Tensor, gallery_ND: Tensor, self_B: Tensor, memory_bytes: int
    ) -> None:
        self.query, self.gallery, self.self_index = query_BD, gallery_ND, self_B
        # a median, which a few far items do not move: errors are smallest near the center
        center_D = gallery_ND[:: 1 + len(gallery_ND) // SAMPLE].double().median(dim=0).values
        scaled_ND = gallery_ND.double() - center_D
        scaled_BD = scaled_ND if query_BD is gallery_ND else query_BD.double() - center_D
        reach = max(float(part.abs().amax(dim=0).sum()) for part in (scaled_ND, scaled_BD))
        scale = find_scale(reach)  # squares cannot overflow
        self._gallery = scaled_ND.mul_(scale)
        self._query = self._gallery if query_BD is gallery_ND else scaled_BD.mul_(scale)
        self._norm_N = self._gallery.norm(dim=1)
        self._first_N = first_equal_items(gallery_ND)
        self._chunk = max(1, memory_bytes // (PAIR_BYTES * len(gallery_ND)))

    def relevance(self, query_B: Tensor, gallery_N: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields indices of queries (n) and whether the item at each of their ranks is relevant.

        The masks n×N are False for the query itself.

        Args:
            query_B: classes of the queries.
            gallery_N: classes of the gallery.
        """
        half_N = -0.5 * self._norm_N.square()
        everything = torch.arange(len(self.query), device=self.query.device)
        for rows_n in everything.split(self._chunk):
            scores_nN = torch.addmm(half_N, self._query[rows_n], self._gallery.T)
            own_n = self.self_index[rows_n]
            known_n = (own_n >= 0).nonzero().squeeze(1)
            scores_nN[known_n, own_n[known_n]] = -torch.inf
            scores_nN, order_nN = scores_nN.sort(dim=1, descending=True, stable=True)
            step = -(-len(rows_n) // PARTS)
            parts = (part.split(step) for part in (rows_n, scores_nN, order_nN))
            for rows, scores, order in zip(*parts, strict=True):
                hits = gallery_N[order] == query_B[rows, None]
                hits &= order != self.self_index[rows, None]
                self._settle(rows, scores, order, hits)
                yield rows, hits

    def _settle(self, rows_n: Tensor, scores_nN: Tensor, order_nN: Tensor, hits_nN: Tensor) -> None:
        """Corrects, in place, the relevance at ranks whose order the scores leave open.

        Adjacent ranks in open order form a run. The items of a run are sorted by exact distance,
        ties by index, and stay within its ranks.
        """
        rows_P, ranks_P, run_P = _find_runs(self._open_order(rows_n, scores_nN, order_nN))
        if not len(rows_P):
            return
        relevant_P = hits_nN[rows_P, ranks_P]
        # the order within a run matters only if it has relevant and irrelevant items
        sizes = torch.bincount(run_P)
        relevant_items = torch.bincount(run_P, weights=relevant_P)
        is_mixed = (relevant_items > 0) & (relevant_items < sizes)
        kept_P = is_mixed[run_P]
        rows_P, ranks_P, run_P = rows_P[kept_P], ranks_P[kept_P], run_P[kept_P]
        relevant_P = relevant_P[kept_P]
        columns_P = order_nN[rows_P, ranks_P]
        distances_P = self._squared_distances(rows_n, rows_P, columns_P)
        # the first key is the run, and runs are numbered by row and rank: none leaves its ranks
        order_P = lexical_order(run_P, distances_P, columns_P)
        hits_nN[rows_P, ranks_P] = relevant_P[order_P]

    def _open_order(self, rows_n: Tensor, scores_nN: Tensor, order_nN: Tensor) -> Tensor:
        """Returns whether items of two adjacent ranks may be in another order (n×(N − 1)).

        A rank is a border if every item up to it certainly precedes every item after it.
        """
        norm_n1 = self._query[rows_n].norm(dim=1, keepdim=True)
        dim = self.query.shape[1]
        error_nN = score_error(norm_n1, self._norm_N[order_nN], dim, FLOAT64_UNIT)
        lowest_nN = (scores_nN - error_nN).cummin(dim=1).values
        highest_nN = (scores_nN + error_nN).flip(1).cummax(dim=1).values.flip(1)
        return lowest_nN[:, :-1] <= highest_nN[:, 1:]

    def _squared_distances(self, rows_n: Tensor, rows_P: Tensor, columns_P: Tensor) -> Tensor:
        """Returns squared distances of pairs by differences; those of equal items once."""
        count = len(self.gallery)
        keys_P = rows_P * count + self._first_N[columns_P]
        keys, inverse_P = keys_P.unique(return_inverse=True)
        rows, columns = rows_n[keys // count], keys % count
        return squared_distances(self.query, self.gallery, rows, columns)[inverse_P]


def _find_runs(open_nN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns rows, ranks, and numbers of runs from 0, of all items in runs; ordered by these (P).

    Args:
        open_nN: whether a rank and the next one are in the same run (n×(N − 1)).
    """
    with_next_nN = nn.functional.pad(open_nN, (0, 1))
    with_previous_nN = nn.functional.pad(open_nN, (1, 0))
    rows_P, ranks_P = (with_next_nN | with_previous_nN).nonzero(as_tuple=True)
    starts_P = ~with_previous_nN[rows_P, ranks_P]
    return rows_P, ranks_P, starts_P.cumsum(dim=0) - 1
