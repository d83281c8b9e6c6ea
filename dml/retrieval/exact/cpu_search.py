"""The search engine for CPUs: the candidates of `PlainSearch` in a fraction of the time.

`PlainSearch` is one matrix product and one `topk`. On a CPU the product for Stanford Online
Products (60,502² scores) takes seconds, `topk` takes three times as long, and the scores do not fit
into memory. This engine needs half of the product and very little sorting:

1. `ScaledGallery` shuffles the items and divides them into tiles of up to 1536 items: a tile of
   scores stays in the processor's cache, and every tile is a random sample of the gallery.
2. If the queries are the gallery itself, a tile of scores is used for its rows and, transposed, for
   its columns: each pair is computed once (`CpuSearch.table`). Other queries are compared with all
   tiles in turn (`CpuSearch.best`).
3. `RunningTop` keeps the entries above a threshold, which may be among a query's m best. A sample
   of a share f of the gallery contains about m·f of the m best entries; the threshold is the score
   at this rank plus 4.5 standard deviations, long before m good entries are known. Nearly all later
   scores are dropped by one comparison, without a sort.
4. Each thread processes a whole tile: threads that share the twenty short operations of a tile
   would wait for each other twenty times. Products are those of the library that is fastest here
   (`dml.retrieval.exact.products`).

With a small probability, a sample gives a threshold that is too high. Then fewer than m kept
entries reach the threshold. `RunningTop.finish` detects this, since all dropped scores are at most
the threshold, and marks the queries, a few in a million, which `search` searches again.

Shapes: n queries and c gallery items of one tile, N' gallery rows, E extended dimensions, m
candidates, w ranks, P entries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import local
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dml.core.blas_threads import one_thread_a_product
from dml.core.torch_settings import fewer_threads
from dml.retrieval.exact.plain_search import ForEach, PlainSearch
from dml.retrieval.exact.products import Product, choose_product, multiply_by_torch
from dml.retrieval.exact.running_top import SCORE_BITS, SPARE, RunningTop, row_bits
from dml.retrieval.exact.scaled_gallery import ScaledGallery, as_queries

BYTES_PER_WORKER = 24 << 20  # a tile of 9 MB and the buffers for the selection


class CpuSearch(PlainSearch):
    """Proposes candidates tile by tile, on several threads; see `PlainSearch`."""

    max_queries = 1024

    def __init__(
        self, gallery: ScaledGallery, memory_bytes: int, table_bytes: int | None = None
    ) -> None:
        # as many tiles in parallel as memory and torch's threads allow
        self.workers = max(1, min(torch.get_num_threads(), memory_bytes // BYTES_PER_WORKER))
        if table_bytes is None:
            table_bytes = memory_bytes
        super().__init__(gallery, memory_bytes // self.workers, table_bytes)
        limit = 1 << (63 - SCORE_BITS - row_bits(len(gallery.rows)))
        self._product: Product = multiply_by_torch
        self._has_table = gallery.tile <= limit and len(gallery.rows) > gallery.tile
        self.max_queries = min(self.max_queries, limit)

    @contextmanager
    def threads(self) -> Iterator[ForEach]:
        """See `PlainSearch.threads`.

        PyTorch's threads are divided among the workers and the caller: after short operations of
        the caller, its threads would spin for milliseconds on the cores of the workers.
        """
        share = max(1, torch.get_num_threads() // self.workers)
        with fewer_threads(share):
            pool = ThreadPoolExecutor(self.workers, "tiles", torch.set_num_threads, (share,))
            with one_thread_a_product(), pool:
                if len(self.gallery.rows) > self.gallery.tile:  # else it is not worth a measurement
                    self._product = choose_product(self.gallery.rows.shape[1])
                yield lambda function, items: list(pool.map(function, items))

    def multiply(self, a_nE: Tensor, b_cE: Tensor, out_nc: Tensor) -> None:
        """See `PlainSearch.multiply`: by the fastest library, in the thread that calls it."""
        self._product(a_nE.numpy(), b_cE.numpy(), out_nc.numpy())

    def bytes_per_query(self, m: int) -> int:
        """See `PlainSearch.bytes_per_query`: a row of a tile, its entries and the candidates."""
        return 4 * self.gallery.tile + 24 * (m + SPARE) + 40 * m

    def table(self, m: int, for_each: ForEach) -> tuple[Tensor, Tensor] | None:
        """See `PlainSearch.table`: half of the product, if the table fits into memory.

        Tiles are processed diagonal by diagonal, so that all queries are compared with equally many
        tiles at a time, and thresholds rise early.
        """
        tile, rows = self.gallery.tile, self.gallery.rows
        total = len(rows)
        if not self._has_table or total * (24 * (m + SPARE) + 8 * m) > self.table_bytes:
            return None
        blocks = rows.split(tile)
        tops = [RunningTop(tile, m, total) for _ in blocks]
        buffers = local()

        def visit(pair: tuple[int, int]) -> None:
            offset, number = pair
            other = (number + offset) % len(blocks)
            # other threads may be behind, so that fewer items are seen; thresholds then are lower
            seen = min(total, (2 * offset + 1) * tile)
            if not hasattr(buffers, "scores"):  # new memory would halve the speed
                buffers.scores, buffers.queries = rows.new_empty(tile, tile), blocks[0].clone()
            queries = as_queries(blocks[number], buffers.queries)
            self.multiply(queries, blocks[other], buffers.scores)
            tops[number].offer(buffers.scores.numpy(), other * tile, seen)
            if offset > 0:
                tops[other].offer(buffers.scores.numpy().T, number * tile, seen)

        count = len(blocks)
        pairs = itertools.product(range(count // 2 + 1), range(count))
        # the last diagonal of an even number of blocks would contain every pair twice
        for_each(visit, [pair for pair in pairs if 2 * pair[0] < count or pair[1] < pair[0]])
        scores, gallery_rows = zip(*for_each(RunningTop.finish, tops), strict=True)
        return _joined(scores), _joined(gallery_rows)

    def best(self, query_nE: Tensor, m: int) -> tuple[Tensor, Tensor]:
        """See `PlainSearch.best`."""
        n, total, tile = len(query_nE), len(self.gallery.rows), self.gallery.tile
        top = RunningTop(n, m, total)
        step = tile * max(1, min(tile // n, total // tile))  # for few queries, several tiles
        buffer = query_nE.new_empty(n * step)
        for first in range(0, total, step):
            rows = self.gallery.rows[first : first + step]
            scores = buffer[: n * len(rows)].view(n, -1)
            self.multiply(query_nE, rows, scores)
            top.offer(scores.numpy(), first, first + len(rows))
        scores_nm, rows_nm = top.finish()
        return torch.from_numpy(scores_nm), torch.from_numpy(rows_nm)


def _joined(parts: Sequence[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
