"""Metrics of single queries from the relevance of their first neighbors.

Shapes: n queries, k neighbors, R relevant items of a query.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class RankedHits:
    """Relevance of the first items in the ranking of some queries.

    Attributes:
        hits_nk: whether the item at each rank is relevant; k is at least the largest R.
        R_n: how many relevant items each query has, 1 or more (float64).
        relevant_nr: `hits_nk` for the first R ranks of each query, False beyond them.
        found_nr: how many of the items up to each rank are relevant.
    """

    def __init__(self, hits_nk: Tensor, relevant_n: Tensor) -> None:
        longest = hits_nk.shape[1]
        if hits_nk.device.type == "cpu":  # reading the number would keep a GPU waiting
            longest = int(relevant_n.max())
        self.rank_r = torch.arange(1, longest + 1, device=relevant_n.device)
        self.hits_nk = hits_nk
        self.relevant_nr = hits_nk[:, :longest] & (self.rank_r <= relevant_n[:, None])
        self.found_nr = self.relevant_nr.cumsum(dim=1)
        self.R_n = relevant_n.double()


def precision_at_1(ranked: RankedHits) -> Tensor:
    """Returns 1 for each query (n) whose nearest item is relevant, else 0."""
    return ranked.hits_nk[:, 0].double()


def r_precision(ranked: RankedHits) -> Tensor:
    """Returns the share of relevant items among the first R of each query (n)."""
    return ranked.found_nr[:, -1] / ranked.R_n


def map_at_r(ranked: RankedHits) -> Tensor:
    """Returns (1/R) Σ_{i≤R} P(i)·rel(i) of each query (n)."""
    precision_nr = ranked.found_nr.double() / ranked.rank_r
    return precision_nr.masked_fill_(~ranked.relevant_nr, 0.0).sum(dim=1) / ranked.R_n


# One value per query from what is relevant at its first R ranks; `dml.core.metric_names` labels
# them. Recall@K, for which more ranks may have to be known, is computed apart.
METRICS: dict[str, Callable[[RankedHits], Tensor]] = {
    function.__name__: function for function in (precision_at_1, r_precision, map_at_r)
}
