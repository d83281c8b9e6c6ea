"""Exact search: candidates by float32 scores, exact order in float64.

An engine (`PlainSearch`, `CpuSearch`, `FaissSearch`) proposes slightly more than k candidates with
their scores. Candidates whose scores differ by less than the bound on the rounding error are
compared again in float64, and queries that may miss a neighbor are searched again in float64
(`order`).

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors, m candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from dml.core.option_values import BACKENDS
from dml.core.torch_settings import full_float32
from dml.retrieval.exact.cpu_search import CpuSearch
from dml.retrieval.exact.order import (
    nearest_of_all,
    sort_near_ties,
    squared_distances,
    without_surplus_duplicates,
)
from dml.retrieval.exact.plain_search import FaissSearch, PlainSearch
from dml.retrieval.exact.relevant_ranks import ClassMembers, count_closer
from dml.retrieval.exact.scaled_gallery import ScaledGallery, tile_size
from dml.retrieval.inputs import (
    ArrayLike,
    check_counts,
    check_embeddings,
    check_one_dimension,
    table_memory,
    working_memory,
)

PAIR_BYTES = 64  # memory of the exact comparison of a query and an item


class Neighbors(NamedTuple):
    """Distances (B×k, ascending, in the embeddings' precision) and gallery indices (B×k)."""

    distances: Tensor
    indices: Tensor


def nearest_neighbors(
    query: ArrayLike,
    gallery: ArrayLike | None = None,
    *,
    k: int,
    backend: str = "auto",
    memory_mb: float | None = None,
) -> Neighbors:
    """Returns the exact k nearest gallery items of every query.

    Items are ordered by Euclidean distance, computed in float64 (half precision is converted to
    float32 first), and equal distances by gallery index, so that the result is the same on every
    machine.

    Args:
        query: B×D embeddings on any device.
        gallery: N×D embeddings; None: the queries are the gallery, and a query is not its own
            neighbor.
        k: neighbors per query, 1 to N (N − 1 without a gallery).
        backend: "torch", "faiss" (must be installed) or "auto", which means torch.
            `python scripts/benchmark.py retrieval --backends torch faiss` compares them.
        memory_mb: bound on the size of the working buffers, in addition to a float32 copy of the
            gallery; None: 64 on a CPU, and where the gallery is searched in itself up to twice its
            size if memory is free; on a GPU a quarter of its free memory, at most 4,096.

    Raises:
        ValueError: shapes are incompatible, the gallery is empty, k is out of range, or embeddings
            contain NaN or infinite values (the message says how many).
    """
    search = ExactSearch(query, gallery, max_k=k, backend=backend, memory_mb=memory_mb)
    count, device = len(search.query), search.query.device
    indices = torch.empty(count, k, dtype=torch.long, device=device)
    distances = torch.empty(count, k, dtype=search.query.dtype, device=device)

    def store(rows: Tensor, indices_nk: Tensor) -> None:
        indices[rows] = indices_nk
        query_P = rows.repeat_interleave(k)
        squared = squared_distances(search.query, search.gallery, query_P, indices_nk.reshape(-1))
        distances[rows] = squared.sqrt_().view(-1, k).to(distances.dtype)

    everything = torch.arange(count, device=device)
    search.map_chunks(everything, torch.full((count,), k), store)
    return Neighbors(distances, indices)


class SearchOptions(TypedDict, total=False):
    """Options of the search that do not change the result; see `nearest_neighbors`."""

    backend: str
    memory_mb: float | None


class ExactSearch:
    """Exact search of queries in a gallery.

    Args:
        query, gallery, memory_mb, backend: as for `nearest_neighbors`.
        max_k: the largest k of all queries.
        self_index: position of each query in the gallery (B), −1 for a query that is not in it. A
            query comes last among its own neighbors. None: no query is in the gallery.

    Raises:
        ValueError: as `nearest_neighbors`.
    """

    def __init__(
        self,
        query: ArrayLike,
        gallery: ArrayLike | None = None,
        *,
        max_k: int,
        backend: str = "auto",
        memory_mb: float | None = None,
        self_index: Tensor | None = None,
    ) -> None:
        self.query = check_embeddings(query, "query")
        self._excludes_itself = gallery is None
        self.gallery = self.query if gallery is None else check_embeddings(gallery, "gallery")
        check_one_dimension(self.query, self.gallery, "query and gallery")
        if backend not in BACKENDS:
            raise ValueError(
                f"backend must be {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}, got {backend!r}"
            )
        check_counts([max_k], "k")
        available = len(self.gallery) - self._excludes_itself
        if max_k > available:
            raise ValueError(
                f"k must lie between 1 and the {available} gallery items a query can find,"
                f" got {max_k}"
            )
        if self._excludes_itself:
            self_index = torch.arange(len(self.query), device=self.query.device)
        elif self_index is None:
            self_index = torch.full((len(self.query),), -1, device=self.query.device)
        self._self_index = self_index
        self._max_k = max_k
        memory_bytes = working_memory(memory_mb, self.query.device)
        table_bytes = table_memory(memory_mb, self.gallery)
        engine = CpuSearch if self.query.device.type == "cpu" else PlainSearch
        tile = tile_size(len(self.gallery), self._candidates(max_k))
        self._engine: PlainSearch = (FaissSearch if backend == "faiss" else engine)(
            ScaledGallery(self.gallery, self.query, tile), memory_bytes, table_bytes
        )

    def map_chunks(
        self,
        rows: Tensor,
        k_n: Tensor,
        function: Callable[[Tensor, Tensor], None],
        classes: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Finds neighbors chunk by chunk, and calls a function with those of each chunk.

        Args:
            rows: indices of the queries.
            k_n: number of neighbors of each query, ascending; a chunk uses the largest.
            function: called with query indices (n) and the gallery indices (n×k) of their nearest
                items, possibly in several threads at once.
            classes: classes of all queries (B) and gallery items (N). If given, near ties are
                resolved only between relevant and irrelevant items, which is enough for metrics.
        """
        engine, m = self._engine, self._candidates(self._max_k)
        size = self._chunk_size(rows, engine.bytes_per_query(m))
        largest = [int(part[-1]) for part in k_n.cpu().split(size)]
        with full_float32(self.query.device), engine.threads() as for_each:
            table = None
            if self._excludes_itself and 2 * len(rows) > len(self.gallery):
                table = engine.table(m, for_each)

            def search(chunk: tuple[Tensor, int]) -> None:
                function(chunk[0], self._nearest(*chunk, table, classes))

            for_each(search, zip(rows.split(size), largest, strict=True))

    def first_ranks(self, rows: Tensor, classes: tuple[Tensor, Tensor], limit: int) -> Tensor:
        """Returns the number of items before the nearest relevant item of each query.

        Args:
            rows: indices of the queries (n), each with a relevant item.
            classes: classes of all queries (B) and gallery items (N), 0..C−1.
            limit: numbers from this on are lower bounds.
        """
        members, gallery = ClassMembers(classes[1]), self._engine.gallery

        def rank(part: Tensor) -> Tensor:
            pairs = members.pairs(classes[0][part])
            return count_closer(
                gallery,
                self.gallery,
                self.query[part],
                pairs,
                self._self_index[part],
                limit,
                self._engine.multiply,
            )

        # all items of a tile may be near the relevant one, and all items of a class are compared
        largest = int(members.counts[classes[0][rows]].max())
        size = self._chunk_size(rows, PAIR_BYTES * (gallery.tile + largest))
        with full_float32(self.query.device), self._engine.threads() as for_each:
            return torch.cat(for_each(rank, rows.split(size)))

    def _chunk_size(self, rows: Tensor, bytes_per_query: int) -> int:
        engine = self._engine
        fits = max(1, engine.memory_bytes // bytes_per_query)
        return min(engine.max_queries, fits, math.ceil(len(rows) / engine.workers))

    def _candidates(self, k: int) -> int:
        """Returns the number of candidates for k neighbors, so that second searches are rare."""
        return min(k + 5 + k // 16, len(self.gallery))  # the query may be one of them

    @cached_property
    def _kept(self) -> Tensor:
        return without_surplus_duplicates(self.gallery, self._max_k + 1)

    def _nearest(
        self,
        rows: Tensor,
        k: int,
        table: tuple[Tensor, Tensor] | None,
        classes: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Returns the gallery indices (n×k) of the exact neighbors of the queries `rows`."""
        gallery, query_nD, self_n = self._engine.gallery, self.query[rows], self._self_index[rows]
        if table is None:
            query_nE = gallery.queries(query_nD)
            scores_nm, rows_nm = self._engine.best(query_nE, self._candidates(k))
            error_n = gallery.error(query_nE[:, -1])
        else:
            row_n = gallery.row_of_item[rows]
            scores_nm, rows_nm = (part.index_select(0, row_n) for part in table)
            error_n = gallery.error(gallery.rows[row_n, -2])
        last_n = scores_nm[:, -1]  # no other item has a higher score
        # selecting by flat indices is twice as fast as indexing by a matrix
        indices_nm = gallery.order.index_select(0, rows_nm.flatten()).view_as(rows_nm)
        scores_nm, indices_nm = _move_last(scores_nm, indices_nm, self_n)
        relevant_nm = None
        if classes is not None:
            classes_nm = classes[1].index_select(0, indices_nm.flatten()).view_as(indices_nm)
            relevant_nm = classes_nm == classes[0][rows, None]
        sort_near_ties(query_nD, self.gallery, scores_nm, indices_nm, error_n, k, relevant_nm)
        unsure = (scores_nm[:, k - 1] - last_n <= 2 * error_n).nonzero().squeeze(1)
        if len(unsure) and indices_nm.shape[1] < len(self.gallery):
            step = max(1, self._engine.memory_bytes // (64 * len(self._kept)))
            for part in unsure.split(step):
                indices_nm[part, :k] = nearest_of_all(
                    query_nD[part], self.gallery, self._kept, gallery.scaled, self_n[part], k
                )
        return indices_nm[:, :k]


def _move_last(scores_nm: Tensor, indices_nm: Tensor, self_n: Tensor) -> tuple[Tensor, Tensor]:
    """Moves the queries themselves to the end of their candidates, with a score of −∞."""
    is_self = indices_nm == self_n[:, None]
    last = indices_nm.shape[1] - 1
    rank_m = torch.arange(last + 1, device=self_n.device)
    self_n1 = torch.where(is_self, rank_m, last).amin(dim=1, keepdim=True)
    column_nm = rank_m + (rank_m >= self_n1)
    column_nm[:, -1:] = self_n1
    scores_nm = scores_nm.masked_fill(is_self, -torch.inf)
    return scores_nm.gather(1, column_nm), indices_nm.gather(1, column_nm)
