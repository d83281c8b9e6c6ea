"""The search engine for GPUs: one product and one `topk` per chunk of queries.

The engines in `cpu_search` and `faiss_backend` are subclasses.

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
    """Scores (n×m, descending), gallery indices (n×m), and a bound on the scores' errors (n)."""

    scores: Tensor
    indices: Tensor
    error: Tensor


def width(k: int, available: int) -> int:
    """Returns the number of candidates for k neighbors, so that second searches are rare."""
    return min(k + 4 + k // 16, available)


class PlainSearch:
    """Proposes candidates for the exact nearest neighbors, slightly more than k, by float32 scores.

    Args:
        gallery: the gallery.
        available: number of items that a query can find.
        memory_bytes: bound on the working memory.

    Attributes:
        workers: number of chunks that are processed in parallel.
        max_queries: largest number of queries of a chunk.
    """

    squares_in_product = False  # whether −½‖g‖² is a term of the product (`score_error`)
    workers = 1
    max_queries = 1 << 14

    def __init__(self, gallery: ScaledGallery, available: int, memory_bytes: int) -> None:
        self.gallery, self.available, self.memory_bytes = gallery, available, memory_bytes

    def __enter__(self) -> PlainSearch:
        return self

    def __exit__(self, *exception: object) -> None:
        """Frees the results of `prepare`."""

    def prepare(self, rows: int, k: int) -> None:
        """Precomputes results if `rows` items of the gallery will be queries for k neighbors."""

    def for_each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Returns `function(item)` for all items, in order."""
        return [function(item) for item in items]

    def bytes_per_query(self, k: int) -> int:
        """Returns the memory per query: its scores, a copy of them and k results."""
        return 8 * len(self.gallery.rows) + 40 * k

    def propose(self, query_nD: Tensor, self_n: Tensor | None, k: int) -> Candidates:
        """Returns the candidates of queries, without their own gallery indices (n)."""
        gallery = self.gallery
        centered_nD, half_square_n = gallery.center_queries(query_nD)
        self_row_n = None if self_n is None else gallery.place[self_n]
        scores_nm, rows_nm = self.best(centered_nD, self_row_n, width(k, self.available))
        return self.as_candidates(scores_nm, rows_nm, half_square_n)

    def best(self, query_nD: Tensor, self_n: Tensor | None, m: int) -> tuple[Tensor, Tensor]:
        """Returns scores, without −½‖q‖², and gallery rows of the m best items (both n×m)."""
        scores_nN = query_nD @ self.gallery.rows.T
        scores_nN += self.gallery.half_squares
        if self_n is not None:
            scores_nN.scatter_(1, self_n[:, None], -torch.inf)
        scores_nm, rows_nm = scores_nN.topk(m, dim=1)
        return scores_nm, rows_nm

    def as_candidates(
        self, scores_nm: Tensor, rows_nm: Tensor, half_square_n: Tensor
    ) -> Candidates:
        """Returns candidates with gallery indices and a bound on the errors of their scores."""
        norm_n = (-2.0 * half_square_n.double()).sqrt()
        error_n = score_error(
            norm_n,
            self.gallery.largest,
            self.gallery.rows.shape[1],
            FLOAT32_UNIT,
            squares_in_product=self.squares_in_product,
        )
        # selecting by flat indices is twice as fast as indexing by a matrix
        indices_nm = self.gallery.order.index_select(0, rows_nm.flatten()).view_as(rows_nm)
        return Candidates(scores_nm, indices_nm, error_n)
