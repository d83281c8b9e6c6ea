"""The search engine for CPUs: the same candidates as `PlainSearch` in a fraction of the time.

Shapes: n queries of one chunk, N' gallery rows, k neighbors, m candidates per query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from torch import Tensor

from dml.retrieval.cpu_search.running_top import RunningTop, max_queries
from dml.retrieval.cpu_search.scans import Workers, scan_rows, scan_symmetric, worker_count
from dml.retrieval.plain_search import Candidates, PlainSearch, width
from dml.retrieval.scaled_gallery import ScaledGallery

MAX_QUERIES = 1024  # per chunk
Item = TypeVar("Item")
Result = TypeVar("Result")


class CpuSearch(PlainSearch):
    """Proposes candidates tile by tile, on several threads; see `PlainSearch`."""

    def __init__(self, gallery: ScaledGallery, available: int, memory_bytes: int) -> None:
        self.workers = worker_count(memory_bytes)
        super().__init__(gallery, available, memory_bytes // self.workers)
        self._table_bytes = memory_bytes
        self._table: tuple[Tensor, Tensor] | None = None
        self.max_queries = min(MAX_QUERIES, max_queries(len(gallery.rows)))

    def __enter__(self) -> CpuSearch:
        self._pool = Workers(self.workers).__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._table = None
        self._pool.__exit__(*exception)

    def prepare(self, rows: int, k: int) -> None:
        """Finds the candidates of all gallery items at once if this is faster and fits into memory.

        It is faster for queries that are more than half of the gallery, with half of the product.
        """
        gallery, m = self.gallery, width(k, self.available)
        bytes_needed = len(gallery.rows) * (RunningTop.bytes_per_query(m) + 8 * m)
        fits = gallery.tile <= max_queries(len(gallery.rows)) and bytes_needed <= self._table_bytes
        if fits and 2 * rows > gallery.items >= 2 * gallery.tile:
            self._table = scan_symmetric(gallery, m, self._pool)

    def for_each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Returns `function(item)` for all items, in order, computed in several threads."""
        return self._pool.for_each(function, items)

    def bytes_per_query(self, k: int) -> int:
        """Returns the memory per query: a row of a tile, its candidates and k results."""
        return 4 * self.gallery.tile + RunningTop.bytes_per_query(width(k, self.available)) + 40 * k

    def propose(self, query_nD: Tensor, self_n: Tensor | None, k: int) -> Candidates:
        """See `PlainSearch.propose`."""
        if self._table is None or self_n is None:
            return super().propose(query_nD, self_n, k)
        row_n = self.gallery.place[self_n]
        scores_nm, rows_nm = (part.index_select(0, row_n) for part in self._table)
        return self.as_candidates(scores_nm, rows_nm, self.gallery.half_squares[row_n])

    def best(self, query_nD: Tensor, self_n: Tensor | None, m: int) -> tuple[Tensor, Tensor]:
        """See `PlainSearch.best`."""
        return scan_rows(self.gallery, query_nD, self_n, m)
