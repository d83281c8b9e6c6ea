"""Scans of the whole gallery, tile by tile, for the best candidates of each query.

If the queries are the gallery, a tile is used for its rows and for its columns, and half of the
product is sufficient.

Shapes: n queries, c items of one tile, D dimensions, m candidates per query, N' gallery rows.

Each thread processes a whole tile: threads that share the twenty short operations of a tile would
wait for each other twenty times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import TypeVar

import torch
from torch import Tensor

from dml.retrieval.cpu_search.running_top import RunningTop
from dml.retrieval.scaled_gallery import ScaledGallery

Item = TypeVar("Item")
Result = TypeVar("Result")
BYTES_PER_WORKER = 24 << 20  # a tile of 9 MB and the buffers for the selection


def worker_count(memory_bytes: int) -> int:
    """Returns the number of tiles to process in parallel, limited by memory and torch's threads."""
    return max(1, min(torch.get_num_threads(), memory_bytes // BYTES_PER_WORKER))


class Workers:
    """A pool of threads, as a context manager.

    PyTorch's threads are divided among the workers and the caller: after short operations of the
    caller, its threads would spin for milliseconds on the cores of the workers.

    Args:
        count: number of threads; 1: only the thread of the caller.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> Workers:
        self._threads = torch.get_num_threads()
        share = max(1, self._threads // self.count)
        torch.set_num_threads(share)
        self._pool = ThreadPoolExecutor(
            self.count, "tiles", initializer=torch.set_num_threads, initargs=(share,)
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        # new threads inherit the last number that was set, so the number is restored at the end
        torch.set_num_threads(self._threads)

    def for_each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Returns `function(item)` for all items, in order, computed without gradients."""

        def without_gradients(item: Item) -> Result:
            with torch.no_grad():
                return function(item)

        if self.count == 1:
            return [without_gradients(item) for item in items]
        return list(self._pool.map(without_gradients, items))


# Numbers of tiles after which the thresholds are raised, which needs a sort.
WORTH_RAISING = frozenset(3**power for power in range(1, 20))


def scan_rows(
    gallery: ScaledGallery,
    query_nD: Tensor,
    self_n: Tensor | None,
    m: int,
    *,
    cautious: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the best candidates of queries in the whole gallery.

    Args:
        gallery: the gallery.
        query_nD: queries from `ScaledGallery.center_queries`.
        self_n: gallery row of each query itself, which is excluded, or None.
        m: candidates per query, fewer than the items of a tile.
        cautious: see `RunningTop`.

    Returns:
        Scores without −½‖q‖² and gallery rows (n×m), best first.
    """
    n, total = len(query_nD), len(gallery.rows)
    top = RunningTop(n, m, total, cautious=cautious)
    # for few queries, several tiles at once
    step = gallery.tile * max(1, min(gallery.tile // n, total // gallery.tile))
    buffer = query_nD.new_empty(n * step)
    for first in range(0, total, step):
        last = min(first + step, total)
        tile_nc = buffer[: n * (last - first)].view(n, -1)
        scores = gallery.scores(query_nD, None, slice(first, last), tile_nc)
        if self_n is not None:
            inside = ((self_n >= first) & (self_n < last)).nonzero().squeeze(1)
            scores[inside, self_n[inside] - first] = -torch.inf
        top.offer(scores.numpy(), first, last)
        if last // step in WORTH_RAISING and last < total:
            top.raise_thresholds(last)
    scores_nm, rows_nm, missed = top.finish()
    if len(missed):
        excluded = None if self_n is None else self_n[missed]
        again = scan_rows(gallery, query_nD[missed], excluded, m, cautious=True)
        scores_nm[missed], rows_nm[missed] = again
    return scores_nm, rows_nm


def scan_symmetric(gallery: ScaledGallery, m: int, workers: Workers) -> tuple[Tensor, Tensor]:
    """Returns the best candidates of all gallery items in the gallery, with half of the products.

    Tiles are processed diagonal by diagonal, so that all queries are compared with equally many
    tiles at a time, and thresholds rise early.

    Args:
        gallery: the gallery, of at least two tiles.
        m: candidates per item, fewer than the items of a tile.
        workers: threads that process the tiles.

    Returns:
        Scores (float32) and gallery rows (int32) of the m best, N'×m, for each row of the gallery.
    """
    tile, total = gallery.tile, len(gallery.rows)
    blocks = [slice(first, first + tile) for first in range(0, total, tile)]
    tops = [RunningTop(tile, m, total) for _ in blocks]
    buffers = local()

    def visit(pair: tuple[int, int]) -> None:
        offset, number = pair
        other = (number + offset) % len(blocks)
        rows, columns = blocks[number], blocks[other]
        # other threads may be behind, so that fewer items are seen; thresholds then are lower
        seen = min(total, (2 * offset + 1) * tile)
        if not hasattr(buffers, "scores"):
            buffers.scores = gallery.rows.new_empty(tile, tile)
        scores = gallery.scores(
            gallery.rows[rows], gallery.half_squares[rows], columns, buffers.scores
        )
        if offset == 0:
            scores.fill_diagonal_(-torch.inf)
        if 2 * offset - 1 in WORTH_RAISING:
            tops[number].raise_thresholds(seen - 2 * tile)
        tops[number].offer(scores.numpy(), columns.start, seen)
        if offset > 0:
            tops[other].offer(scores.numpy().T, rows.start, seen)

    # the last diagonal of an even number of blocks would contain every pair twice
    last, even = len(blocks) // 2, len(blocks) % 2 == 0
    counts = [last if even and offset == last else len(blocks) for offset in range(last + 1)]
    pairs = [(offset, number) for offset, count in enumerate(counts) for number in range(count)]
    workers.for_each(visit, pairs)

    scores_Nm = gallery.rows.new_empty(total, m)
    rows_Nm = torch.empty(total, m, dtype=torch.int32)

    def finish(number: int) -> Tensor:
        rows = blocks[number]
        scores_Nm[rows], rows_Nm[rows], missed = tops[number].finish()
        return missed.add_(rows.start)

    missed = torch.cat(workers.for_each(finish, range(len(blocks))))
    missed = missed[gallery.order[missed] < gallery.items]

    def rescan(part: Tensor) -> None:
        scores, rows = scan_rows(gallery, gallery.rows[part], part, m, cautious=True)
        scores_Nm[part] = scores.add_(gallery.half_squares[part, None])
        rows_Nm[part] = rows

    workers.for_each(rescan, missed.split(tile) if len(missed) else ())
    return scores_Nm, rows_Nm
