"""Scores and neighbors of each query, whose means are those of `retrieval_metrics`.

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dml.core.errors import UserError
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.exact.order import squared_distances
from dml.retrieval.exact.relevant_ranks import ClassMembers, sort_relevant
from dml.retrieval.exact.search import ExactSearch
from dml.retrieval.inputs import check_labeled, check_self_index
from dml.retrieval.metrics import METRICS, score_rankings

PER_QUERY = (  # columns of a table of queries
    "query",
    "label",
    "nearest",
    "nearest_label",
    "nearest_distance",
    "correct",
    "precision_at_1",
    "r_precision",
    "average_precision_at_r",
    "first_right_rank",
    "relevant",
)
NEIGHBORS = 10  # of each query
CHUNK = 256  # queries whose relevant items are all compared at once


class QueryScores(NamedTuple):
    """Scores of B queries; a query without a relevant item has NaN and 0.

    Attributes:
        precision_at_1, r_precision, map_at_r: B values, 0–1.
        relevant: B numbers of relevant items, the query itself excluded.
        first_rank: B ranks of the nearest relevant item, from 1.
        nearest: B×k rows of the gallery, the nearest first, without the query itself.
        distances: B×k, of `nearest`.
        right, wrong: B rows of the nearest relevant and the nearest other item; −1: there is none.
        right_distance, wrong_distance: B distances of these; NaN: there is none.
    """

    precision_at_1: np.ndarray
    r_precision: np.ndarray
    map_at_r: np.ndarray
    relevant: np.ndarray
    first_rank: np.ndarray
    nearest: np.ndarray
    distances: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    right_distance: np.ndarray
    wrong_distance: np.ndarray

    @property
    def has_match(self) -> np.ndarray:
        """B booleans: whether the query has a relevant item."""
        return self.relevant > 0

    def rank_worst(self) -> np.ndarray:
        """Returns the queries with a relevant item, the worst first.

        They are in the order of MAP@R, the lowest first; equal ones by the distance by which the
        nearest wrong item is nearer than the nearest right one, the largest first; then by row.
        """
        rows = np.flatnonzero(self.has_match)
        margin = self.right_distance[rows] - self.wrong_distance[rows]
        margin = np.nan_to_num(margin, nan=-np.inf)  # nothing is wrong with such a query
        return rows[np.lexsort((-margin, self.map_at_r[rows]))]


def score_queries(
    embeddings: SplitEmbeddings, k: int = NEIGHBORS, backend: str = "auto"
) -> QueryScores:
    """Returns the scores and the exact neighbors of each query.

    Args:
        embeddings: of queries and gallery.
        k: neighbors of each query; fewer where the gallery is smaller.
        backend: see `dml.retrieval.retrieval_metrics`.

    Raises:
        UserError: embeddings or labels are refused, as by `SplitEmbeddings.score`.
    """
    try:
        return _Scorer(embeddings, backend).score(k)
    except ValueError as error:
        raise UserError(f"evaluation: {error}") from error


class _Scorer:
    """The parts of a split, checked.

    Raises:
        ValueError: they do not fit together.
    """

    def __init__(self, embeddings: SplitEmbeddings, backend: str) -> None:
        query, gallery, self.query_B, self.gallery_N = check_labeled(*embeddings[:4])
        self.query, self.backend = query, backend
        self.searched, self.gallery = gallery, query if gallery is None else gallery
        self.self_B = torch.full_like(self.query_B, -1)
        if gallery is None:
            self.self_B = torch.arange(len(query), device=query.device)
        elif embeddings.self_index is not None:
            self.self_B = check_self_index(embeddings.self_index, self.query_B, self.gallery_N)
        counts = torch.bincount(self.gallery_N, minlength=int(self.query_B.max()) + 1)
        self.relevant_B = counts[self.query_B] - (self.self_B >= 0).long()
        self.available = len(self.gallery) - int((self.self_B >= 0).any())

    def score(self, k: int) -> QueryScores:
        """Returns the scores; see `score_queries`."""
        values_MB, first_B, right_B, wrong_B = self._rank()
        nearest_Bk = self._find_nearest(min(k, self.available))
        distances_Bk = torch.zeros_like(nearest_Bk, dtype=torch.float64)
        for rank in range(nearest_Bk.shape[1]):
            distances_Bk[:, rank] = self._distances(nearest_Bk[:, rank])
        parts = (
            *values_MB,
            self.relevant_B,
            first_B,
            nearest_Bk,
            distances_Bk,
            right_B,
            wrong_B,
            self._distances(right_B),
            self._distances(wrong_B),
        )
        return QueryScores(*(part.cpu().numpy() for part in parts))

    def _search(self, max_k: int) -> ExactSearch:
        self_index = None if self.searched is None else self.self_B
        return ExactSearch(
            self.query, self.searched, max_k=max_k, backend=self.backend, self_index=self_index
        )

    def _rank(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns METRICS (M×B), the first right rank, and the nearest right and wrong rows."""
        relevant_B, classes = self.relevant_B, (self.query_B, self.gallery_N)
        values_MB = self.query.new_full((len(METRICS), len(relevant_B)), torch.nan).double()
        first_B = torch.zeros_like(relevant_B)
        right_B, wrong_B = torch.full_like(relevant_B, -1), torch.full_like(relevant_B, -1)
        order_B = torch.argsort(relevant_B, stable=True)
        rows = order_B[relevant_B[order_B] > 0]
        if not len(rows):
            raise ValueError("labels: no query has a relevant item in the gallery")
        # Among R + 1 neighbors there is a wrong one, unless all items are relevant.
        k_n = torch.maximum((relevant_B[rows] + 1).clamp(max=self.available), relevant_B[rows])
        exact = self._search(int(k_n[-1]))

        def score(part: Tensor, indices_nk: Tensor) -> None:
            hits_nk = self.gallery_N[indices_nk] == self.query_B[part, None]
            values_MB[:, part] = score_rankings(hits_nk, relevant_B[part])
            rank_n, right_n = _first(hits_nk, indices_nk)
            first_B[part], right_B[part] = rank_n, right_n
            wrong_B[part] = _first(~hits_nk, indices_nk)[1]

        exact.map_chunks(rows, k_n, score, classes)
        unlisted = rows[first_B[rows] == 0]
        if len(unlisted):
            first_B[unlisted] = exact.first_ranks(unlisted, classes, len(self.gallery)) + 1
            right_B[unlisted] = self._nearest_relevant(unlisted)
        return values_MB, first_B, right_B, wrong_B

    def _nearest_relevant(self, rows: Tensor) -> Tensor:
        """Returns the row of the nearest relevant item of each query that has one."""
        members, nearest = ClassMembers(self.gallery_N), []
        for part in rows.split(CHUNK):
            pairs = members.pairs(self.query_B[part])
            sorted_pairs = sort_relevant(self.query[part], self.gallery, *pairs, self.self_B[part])
            items_P, first_n = sorted_pairs[2], sorted_pairs[3]
            nearest.append(items_P[first_n])
        return torch.cat(nearest)

    def _find_nearest(self, k: int) -> Tensor:
        """Returns the rows of the k nearest items (B×k), equal distances in the order of rows."""
        indices_Bk = torch.empty(len(self.query), k, dtype=torch.long, device=self.query.device)
        if not k:
            return indices_Bk

        def store(rows: Tensor, indices_nk: Tensor) -> None:
            indices_Bk[rows] = indices_nk

        rows = torch.arange(len(self.query), device=self.query.device)
        self._search(k).map_chunks(rows, torch.full((len(rows),), k), store)
        return indices_Bk

    def _distances(self, items_B: Tensor) -> Tensor:
        """Returns the distance of an item for each query; NaN for −1."""
        distances_B = torch.full_like(items_B, torch.nan, dtype=torch.float64)
        rows = (items_B >= 0).nonzero().flatten()
        squared = squared_distances(self.query, self.gallery, rows, items_B[rows])
        distances_B[rows] = squared.sqrt()
        return distances_B


def _first(chosen_nk: Tensor, indices_nk: Tensor) -> tuple[Tensor, Tensor]:
    """Returns rank (from 1) and item of the first choice of each row; 0 and −1 without one."""
    position_n1 = chosen_nk.long().argmax(dim=1, keepdim=True)
    item_n = indices_nk.gather(1, position_n1).squeeze(1)
    any_n = chosen_nk.any(dim=1)
    rank_n = position_n1.squeeze(1) + 1
    return torch.where(any_n, rank_n, 0), torch.where(any_n, item_n, -1)
