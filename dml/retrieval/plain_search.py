"""The plain search, used on GPUs: one product and one `topk` per chunk of queries.

`cpu_search` and `faiss_backend` derive from it and propose the same in their own ways.

Shapes: n queries of one chunk, N' gallery rows, D dimensions, k neighbors, m candidates per query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from dml.retrieval.exact_order import FLOAT32_UNIT, score_error
from dml.retrieval.scaled_gallery import ScaledGallery

Item = TypeVar("Item")
Result = TypeVar("Result")


class Candidates(NamedTuple):
    """Scores (n×m, descending), gallery indices (n×m), and a bound on each query's error (n)."""

    scores: Tensor
    indices: Tensor
    error: Tensor


def width(k: int, available: int) -> int:
    """Returns m for k neighbors: some more, so that almost no query needs a second search."""
    return min(k + 4 + k // 16, available)


class PlainSearch:
    """Proposes candidates for exact neighbors: a few more than k, by float32 scores.

    Args:
        gallery: what is searched.
        available: how many items a query can find.
        memory_bytes: bound on the working memory.

    Attributes:
        workers: chunks that are worked on at once.
        max_queries: of one chunk.
    """

    squares_in_product = False  # whether −½‖g‖² is a term of the product (`score_error`)
    workers = 1
    max_queries = 1 << 14

    def __init__(self, gallery: ScaledGallery, available: int, memory_bytes: int) -> None:
        self.gallery, self.available, self.memory_bytes = gallery, available, memory_bytes

    def __enter__(self) -> PlainSearch:
        return self

    def __exit__(self, *exception: object) -> None:
        """Frees what `prepare` made."""

    def prepare(self, rows: int, k: int) -> None:
        """Does in advance what pays for so many rows of the gallery as queries of k neighbors."""

    def for_each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Returns the function's value for each item, in their order."""
        return [function(item) for item in items]

    def bytes_per_query(self, k: int) -> int:
        """Memory for one query of k neighbors: its scores and a copy of them, and the results."""
        return 8 * len(self.gallery.rows) + 40 * k

    def propose(self, query_nD: Tensor, own_n: Tensor | None, k: int) -> Candidates:
        """Returns the candidates of some queries, whose own gallery indices (n) are left out."""
        gallery = self.gallery
        centered_nD, half_square_n = gallery.center_queries(query_nD)
        own_row_n = None if own_n is None else gallery.place[own_n]
        scores_nm, rows_nm = self.best(centered_nD, own_row_n, width(k, self.available))
        return self.as_candidates(scores_nm, rows_nm, half_square_n)

    def best(self, query_nD: Tensor, own_n: Tensor | None, m: int) -> tuple[Tensor, Tensor]:
        """Returns the m best scores, without −½‖q‖², and gallery rows of centered queries (n×m)."""
        scores_nN = query_nD @ self.gallery.rows.T
        scores_nN += self.gallery.half_squares
        if own_n is not None:
            scores_nN.scatter_(1, own_n[:, None], -torch.inf)
        scores_nm, rows_nm = scores_nN.topk(m, dim=1)
        return scores_nm, rows_nm

    def as_candidates(
        self, scores_nm: Tensor, rows_nm: Tensor, half_square_n: Tensor
    ) -> Candidates:
        """Adds the bound on the error and turns gallery rows into gallery indices."""
        norm_n = (-2.0 * half_square_n.double()).sqrt()
        error_n = score_error(
            norm_n,
            self.gallery.largest,
            self.gallery.rows.shape[1],
            FLOAT32_UNIT,
            squares_in_product=self.squares_in_product,
        )
        # selecting by flat indices takes half the time of indexing by a matrix
        indices_nm = self.gallery.order.index_select(0, rows_nm.flatten()).view_as(rows_nm)
        return Candidates(scores_nm, indices_nm, error_n)
