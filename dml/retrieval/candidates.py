"""Candidates of some queries, and the exact neighbors among them.

Shapes: n queries of one chunk, D dimensions, k neighbors, m candidates per query.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dml.retrieval.exact_order import has_near_ties, sort_near_ties
from dml.retrieval.full_search import FullSearch
from dml.retrieval.plain_search import Candidates


@dataclass(frozen=True)
class Proposal:
    """Candidates of some queries.

    Attributes:
        queries: n×D.
        own_n: their own gallery indices, which are left out; None if they are not in the gallery.
        candidates: more than k of each, unless the gallery has no more.
        relevant_nm: which candidates are relevant, if that is all that matters about them.
        complete: whether the candidates are all that a query can find.
    """

    queries: Tensor
    own_n: Tensor | None
    candidates: Candidates
    relevant_nm: Tensor | None
    complete: bool

    def is_doubtful(self, k: int) -> Tensor:
        """Returns for which queries (n) `resolve` might change the relevance of the first k.

        Needs `relevant_nm`. A GPU does not wait for the host here, unlike in `resolve`.
        """
        assert self.relevant_nm is not None
        scores_nm, _, error_n = self.candidates
        doubtful_n = has_near_ties(scores_nm, error_n, k, self.relevant_nm)
        return doubtful_n if self.complete else doubtful_n | self._may_miss(k)

    def resolve(self, gallery_ND: Tensor, full: FullSearch, k: int) -> Tensor:
        """Returns the gallery indices (n×k) of the exact neighbors."""
        scores_nm, indices_nm, error_n = self.candidates
        sort_near_ties(
            self.queries, gallery_ND, scores_nm, indices_nm, error_n, k, self.relevant_nm
        )
        indices_nk = indices_nm[:, :k]
        if not self.complete:
            unsure = self._may_miss(k)
            if unsure.any():
                own_u = None if self.own_n is None else self.own_n[unsure]
                indices_nk[unsure] = full.nearest(self.queries[unsure], own_u, k)
        return indices_nk

    def _may_miss(self, k: int) -> Tensor:
        """Returns which queries (n) may have a neighbor outside the candidates."""
        # an item outside has at most the last score plus the error
        scores_nm, _, error_n = self.candidates
        return scores_nm[:, k - 1] - scores_nm[:, -1] <= 2 * error_n
