"""The search behind neighbors and metrics: candidates in float32, their true order in float64.

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors, m candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from dml.retrieval.entries import most_queries
from dml.retrieval.exact import (
    FLOAT32_UNIT,
    FullSearch,
    score_error,
    sort_near_ties,
    squared_distances,
)
from dml.retrieval.faiss_search import scan_faiss
from dml.retrieval.gallery import Gallery
from dml.retrieval.inputs import check_counts, check_embeddings, check_one_dimension
from dml.retrieval.parallel import BYTES_PER_WORKER, Workers, worker_count
from dml.retrieval.product import full_float32
from dml.retrieval.ranks import Members, count_ahead, nearest_relevant
from dml.retrieval.running_top import RunningTop
from dml.retrieval.scans import scan_rows, scan_symmetric

Result = TypeVar("Result")

MEMORY_MB = 64.0
ROWS = 1024  # queries of a chunk
TILE = 1536  # gallery items of a tile: 9 MB of scores stay in the cache
SMALL_TILE = 640
ROUND = 8  # tiles are multiples of this: products of odd sizes are slower
PAIR_BYTES = 64  # what looking at one query and one item exactly takes
BLOCKS = 7  # tiles of a small gallery: many enough to leave out the half that symmetry spares


class NeighborSearch:
    """Queries and the gallery they are searched in.

    Args:
        query, gallery, memory_mb, backend: as for `nearest_neighbors`.
        most: the largest k that will be asked for.

    Attributes:
        available: how many items a query can find.

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
        memory_mb: float = MEMORY_MB,
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
        if backend not in ("auto", "torch", "faiss"):
            raise ValueError(f"backend must be auto, torch or faiss, got {backend!r}")
        check_counts([most], "k")
        self.available = len(self.gallery) - self.own
        if not 1 <= most <= self.available:
            raise ValueError(
                f"k must lie between 1 and the {self.available} gallery items a query can find,"
                f" got {most}"
            )
        if not 0 < memory_mb < math.inf:
            raise ValueError(f"memory_mb must be above 0 and finite, got {memory_mb}")
        self.most = most
        self.backend = backend
        self.memory_bytes = int(memory_mb * 2**20)
        self._workers = worker_count(self.query.device, self.memory_bytes)

    def run(
        self,
        rows: Tensor,
        k_n: Tensor,
        use: Callable[[Tensor, Tensor], Result],
        classes: tuple[Tensor, Tensor] | None = None,
    ) -> list[Result]:
        """Finds neighbors chunk by chunk and returns what `use` makes of each chunk.

        Args:
            rows: numbers of the queries to search for.
            k_n: neighbors for each of them, ascending; a chunk gets what its last query needs.
            use: called with query numbers (n) and the gallery indices (n×k) of their nearest items,
                possibly from several threads at once.
            classes: of all queries (B) and gallery items (N). Given these, near ties are resolved
                only between items of the query's class and others: all that metrics can see.
        """
        # faiss brings its own threads
        count = 1 if self.backend == "faiss" else self._workers
        share = self.memory_bytes // count
        with torch.no_grad(), full_float32(self.query.device), self._with(count) as workers:
            space = self.space
            table = self._symmetric_table(space, len(rows), workers)
            full = FullSearch(self.gallery, space.center, space.scale, self.most, share)

            def search(chunk: slice) -> Result:
                part, k = rows[chunk], int(k_n[chunk.stop - 1])
                return use(part, self._nearest(space, part, k, table, full, classes))

            chunks = self._chunks(k_n.cpu(), space, share, count)
            return workers.for_each(search, chunks)

    def first_ranks(self, rows: Tensor, classes: tuple[Tensor, Tensor], limit: int) -> Tensor:
        """Returns how many items precede the nearest relevant one, for queries that have one.

        Args:
            rows: numbers of the queries (n).
            classes: of all queries (B) and gallery items (N), 0..C−1.
            limit: how far to count.

        Returns:
            n counts, exact below `limit`.
        """
        members = Members(classes[1])

        def rank(part: Tensor) -> Tensor:
            query_nD, own_n = self.query[part], part if self.own else None
            pairs = members.pairs(classes[0][part])
            target = nearest_relevant(query_nD, self.gallery, *pairs, own_n)
            return count_ahead(self.space, query_nD, self.gallery, *target, own_n, limit)

        with full_float32(self.query.device), self._with(self._workers) as workers:
            largest = int(members.counts[classes[0][rows]].max())
            # a tile's items may all pass, and all of a class are compared
            fits = self.memory_bytes // self._workers // (PAIR_BYTES * (self.space.tile + largest))
            most = min(ROWS, max(1, fits), math.ceil(len(rows) / self._workers))
            return torch.cat(workers.for_each(rank, rows.split(most)))

    @cached_property
    def space(self) -> Gallery:
        """The gallery made ready for products."""
        items = len(self.gallery)
        usual = min(TILE, max(SMALL_TILE, items // BLOCKS))
        least = min(max(usual, self._candidates(self.most) + 1), items)
        blocks = max(1, items // least)
        tile = ROUND * math.ceil(items / blocks / ROUND)
        return Gallery(self.gallery, self.query, tile)

    def _symmetric_table(
        self, space: Gallery, queries: int, workers: Workers
    ) -> tuple[Tensor, Tensor] | None:
        """Candidates of all items at once, where half of the product is enough and memory too."""
        width, items = self._candidates(self.most), len(space.rows)
        bytes_needed = items * (RunningTop.bytes_per_query(width) + 8 * width)
        possible = space.tile <= most_queries(items) and bytes_needed <= self.memory_bytes
        worth_it = self.own and 2 * queries > len(self.gallery) >= 2 * space.tile
        if self.backend == "faiss" or not worth_it or not possible:
            return None
        return scan_symmetric(space, width, workers)

    def _candidates(self, k: int) -> int:
        """Some more than k, so that almost no query needs a second search."""
        return min(k + 4 + k // 16, self.available)

    def _with(self, count: int) -> Workers:
        """So many workers; chunks that little memory keeps small are no work for a team."""
        little = self.query.device.type == "cpu" and self.memory_bytes < 2 * BYTES_PER_WORKER
        return Workers(count, teams=self.backend == "faiss" or not little)

    def _chunks(
        self, k_n: Tensor, space: Gallery, memory_bytes: int, workers: int
    ) -> Iterator[slice]:
        """Splits the queries into chunks that fit the memory, enough for all workers."""
        start = 0
        most = min(ROWS, most_queries(len(space.rows)), max(1, math.ceil(len(k_n) / workers)))
        while start < len(k_n):
            stop = min(start + most, len(k_n))
            while True:
                k = int(k_n[stop - 1])
                per_row = 4 * space.tile + RunningTop.bytes_per_query(self._candidates(k)) + 40 * k
                fits = max(1, memory_bytes // per_row)
                if stop - start <= fits:
                    break
                # a shorter chunk may also need a smaller k, so try again rather than compute
                stop = start + max(fits, (stop - start) // 2)
            yield slice(start, stop)
            start = stop

    def _nearest(
        self,
        space: Gallery,
        rows: Tensor,
        k: int,
        table: tuple[Tensor, Tensor] | None,
        full: FullSearch,
        classes: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        query_nD = self.query[rows]
        own_n = rows if self.own else None
        m = self._candidates(self.most if table is not None else k)
        if table is not None:
            places_n = space.place[rows]
            half_square_n = space.half_squares[places_n]
            scores_nm, found_nm = (part.index_select(0, places_n) for part in table)
        else:
            scan = scan_faiss if self.backend == "faiss" else scan_rows
            centered_nD, half_square_n = space.queries(query_nD)
            own_row_n = None if own_n is None else space.place[own_n]
            scores_nm, found_nm = scan(space, centered_nD, own_row_n, m)
        norm_n = (-2.0 * half_square_n.double()).sqrt()
        error_n = score_error(
            norm_n,
            space.largest,
            query_nD.shape[1],
            FLOAT32_UNIT,
            one_product=self.backend == "faiss",
        )
        # selecting from flat indices takes half the time of indexing by a matrix
        indices_nm = space.order.index_select(0, found_nm.flatten()).view_as(found_nm)
        relevant_nm = None
        if classes is not None:
            classes_nm = classes[1].index_select(0, indices_nm.flatten()).view_as(indices_nm)
            relevant_nm = classes_nm == classes[0][rows, None]
        sort_near_ties(query_nD, self.gallery, scores_nm, indices_nm, error_n, k, relevant_nm)
        indices_nk = indices_nm[:, :k]
        if m < self.available:
            # an item outside the candidates has at most the last score plus the error
            unsure = scores_nm[:, k - 1] - scores_nm[:, -1] <= 2 * error_n
            if unsure.any():
                own_u = None if own_n is None else own_n[unsure]
                indices_nk[unsure] = full.nearest(query_nD[unsure], own_u, k)
        return indices_nk

    def distances(self, rows: Tensor, indices_nk: Tensor) -> Tensor:
        """Returns the Euclidean distances (n×k, float64) of the queries `rows` to gallery items."""
        n, k = indices_nk.shape
        query_P = rows.repeat_interleave(k)
        squared = squared_distances(self.query, self.gallery, query_P, indices_nk.reshape(-1))
        return squared.sqrt_().view(n, k)
