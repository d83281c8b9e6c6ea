"""Exact search: candidates by float32 scores, exact order in float64.

An engine (`PlainSearch`, `CpuSearch`, `FaissSearch`) proposes slightly more than k candidates with
their scores and a bound on the rounding error. Candidates whose scores differ by less than the
bound are compared again in float64 (`exact_order`), and queries that may miss a neighbor are
searched again in float64 (`full_search`).

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors, m candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict, TypeVar

import torch
from torch import Tensor

from dml.core.option_values import BACKENDS
from dml.retrieval.cpu_search import CpuSearch
from dml.retrieval.exact_order import sort_near_ties, squared_distances
from dml.retrieval.faiss_backend import FaissSearch
from dml.retrieval.float32_products import full_float32
from dml.retrieval.full_search import FullSearch
from dml.retrieval.inputs import (
    check_counts,
    check_embeddings,
    check_one_dimension,
    working_memory,
)
from dml.retrieval.plain_search import Candidates, PlainSearch, width
from dml.retrieval.relevant_ranks import (
    ClassMembers,
    count_closer,
    nearest_relevant,
)
from dml.retrieval.scaled_gallery import ScaledGallery, tile_size

Result = TypeVar("Result")

PAIR_BYTES = 64  # memory of the exact comparison of a query and an item


@dataclass(frozen=True)
class Proposal:
    """Candidates of queries.

    Attributes:
        queries: n×D.
        self_n: gallery indices of the queries, which are excluded; None if not in the gallery.
        candidates: more than k per query, unless the gallery has fewer items.
        relevant_nm: mask of relevant candidates, if only their order relative to irrelevant
            candidates matters.
        complete: whether the candidates are all items that a query can find.
    """

    queries: Tensor
    self_n: Tensor | None
    candidates: Candidates
    relevant_nm: Tensor | None
    complete: bool

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
                self_u = None if self.self_n is None else self.self_n[unsure]
                indices_nk[unsure] = full.nearest(self.queries[unsure], self_u, k)
        return indices_nk

    def _may_miss(self, k: int) -> Tensor:
        """Returns the mask of queries (n) that may have a neighbor outside the candidates."""
        # other items have at most the last score plus the error
        scores_nm, _, error_n = self.candidates
        return scores_nm[:, k - 1] - scores_nm[:, -1] <= 2 * error_n


class SearchOptions(TypedDict, total=False):
    """Options of the search that do not change the result; see `ExactSearch`."""

    backend: str
    memory_mb: float | None


class ExactSearch:
    """Exact search of queries in a gallery.

    Args:
        query, gallery, memory_mb, backend: as for `nearest_neighbors`.
        most: the largest k of all queries.
        self_index: position of each query in the gallery (B), which is excluded from its
            neighbors. None: all queries search the whole gallery.

    Attributes:
        available: number of items that a query can find.

    Raises:
        ValueError: as `nearest_neighbors`.
    """

    def __init__(
        self,
        query: Tensor,
        gallery: Tensor | None = None,
        *,
        most: int,
        backend: str = "auto",
        memory_mb: float | None = None,
        self_index: Tensor | None = None,
    ) -> None:
        self.query = check_embeddings(query, "query")
        self.own = gallery is None
        self.gallery = self.query if gallery is None else check_embeddings(gallery, "gallery")
        check_one_dimension(self.query, self.gallery, "query and gallery")
        if self.query.device != self.gallery.device:
            raise ValueError(
                f"query and gallery must be on one device, got {self.query.device} and"
                f" {self.gallery.device}"
            )
        if backend not in BACKENDS:
            raise ValueError(
                f"backend must be {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}, got {backend!r}"
            )
        check_counts([most], "k")
        self.self_index = self_index
        self.available = len(self.gallery) - (self.own or self_index is not None)
        if not 1 <= most <= self.available:
            raise ValueError(
                f"k must lie between 1 and the {self.available} gallery items a query can find,"
                f" got {most}"
            )
        self.most = most
        self.backend = backend
        self.memory_bytes = working_memory(memory_mb, self.query.device)

    def map_chunks(
        self,
        rows: Tensor,
        k_n: Tensor,
        function: Callable[[Tensor, Tensor], Result],
        classes: tuple[Tensor, Tensor] | None = None,
    ) -> list[Result]:
        """Finds neighbors chunk by chunk, and returns the results of a function of each chunk.

        Args:
            rows: indices of the queries.
            k_n: number of neighbors of each query, ascending; a chunk uses the largest.
            function: called with query indices (n) and the gallery indices (n×k) of their nearest
                items, possibly in several threads at once.
            classes: classes of all queries (B) and gallery items (N). If given, near ties are
                resolved only between relevant and irrelevant items, which is enough for metrics.

        Returns:
            The result of `function` for each chunk.
        """
        with torch.no_grad(), full_float32(self.query.device), self._engine as engine:
            if self.own:
                engine.prepare(len(rows), self.most)
            full = FullSearch(self.gallery, engine.gallery, self.most, engine.memory_bytes)
            k_n = k_n.cpu()

            def search(chunk: slice) -> Result:
                part, k = rows[chunk], int(k_n[chunk.stop - 1])
                proposal = self._propose(engine, part, k, classes)
                return function(part, proposal.resolve(self.gallery, full, k))

            return engine.for_each(search, _chunks(k_n, engine))

    def first_ranks(self, rows: Tensor, classes: tuple[Tensor, Tensor], limit: int) -> Tensor:
        """Returns the number of items before the nearest relevant item of each query.

        Args:
            rows: indices of the queries (n), each with a relevant item.
            classes: classes of all queries (B) and gallery items (N), 0..C−1.
            limit: counts are exact below this.

        Returns:
            n counts, exact below `limit`.
        """
        members = ClassMembers(classes[1])

        def rank(part: Tensor) -> Tensor:
            pairs = members.pairs(classes[0][part])
            self_n = self._self_items(part)
            targets = nearest_relevant(self.query[part], self.gallery, *pairs, self_n)
            return count_closer(engine.gallery, self.gallery, targets, limit)

        with torch.no_grad(), full_float32(self.query.device), self._engine as engine:
            # all items of a tile may pass, and all items of a class are compared
            largest = int(members.counts[classes[0][rows]].max())
            fits = engine.memory_bytes // (PAIR_BYTES * (engine.gallery.tile + largest))
            size = min(engine.max_queries, max(1, fits), math.ceil(len(rows) / engine.workers))
            return torch.cat(engine.for_each(rank, rows.split(size)))

    def distances(self, rows: Tensor, indices_nk: Tensor) -> Tensor:
        """Returns Euclidean distances (n×k, float64) from the queries `rows` to gallery items."""
        n, k = indices_nk.shape
        query_P = rows.repeat_interleave(k)
        squared = squared_distances(self.query, self.gallery, query_P, indices_nk.reshape(-1))
        return squared.sqrt_().view(n, k)

    @cached_property
    def _engine(self) -> PlainSearch:
        """The search engine that proposes candidates on this device."""
        kind: type[PlainSearch] = PlainSearch
        if self.backend == "faiss":
            kind = FaissSearch
        elif self.query.device.type == "cpu":
            kind = CpuSearch
        tile = tile_size(len(self.gallery), width(self.most, self.available))
        scaled = ScaledGallery(self.gallery, self.query, tile)
        return kind(scaled, self.available, self.memory_bytes)

    def _self_items(self, rows: Tensor) -> Tensor | None:
        """Returns the gallery indices (n) of the queries `rows`; None if not in the gallery."""
        if self.own:
            return rows
        return None if self.self_index is None else self.self_index[rows]

    def _propose(
        self, engine: PlainSearch, rows: Tensor, k: int, classes: tuple[Tensor, Tensor] | None
    ) -> Proposal:
        """Returns the candidates of the queries `rows`."""
        query_nD, self_n = self.query[rows], self._self_items(rows)
        candidates = engine.propose(query_nD, self_n, k)
        relevant_nm = None
        if classes is not None:
            indices_nm = candidates.indices
            classes_nm = classes[1].index_select(0, indices_nm.flatten()).view_as(indices_nm)
            relevant_nm = classes_nm == classes[0][rows, None]
        complete = candidates.scores.shape[1] >= self.available
        return Proposal(query_nD, self_n, candidates, relevant_nm, complete)


def _chunks(k_n: Tensor, engine: PlainSearch) -> Iterator[slice]:
    """Yields chunks of queries that fit into memory, for k_n neighbors per query (ascending)."""
    start = 0
    # enough chunks for all workers
    largest = min(engine.max_queries, math.ceil(len(k_n) / engine.workers))
    while start < len(k_n):
        stop = min(start + largest, len(k_n))
        while True:
            per_query = engine.bytes_per_query(int(k_n[stop - 1]))
            fits = max(1, engine.memory_bytes // per_query)
            if stop - start <= fits:
                break
            # a shorter chunk may also need a smaller k, so try again
            stop = start + max(fits, (stop - start) // 2)
        yield slice(start, stop)
        start = stop
