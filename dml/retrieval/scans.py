"""Scores queries against a whole gallery, tile by tile, and returns the best candidates of each.

Where the queries are their own gallery, a tile serves its rows and its columns: half of the product
suffices.

Shapes: n queries, D dimensions, m candidates per query.
"""

from __future__ import annotations

from threading import Lock, local

import torch
from torch import Tensor

from dml.retrieval.gallery import Gallery
from dml.retrieval.parallel import for_each
from dml.retrieval.running_top import RunningTop


def scan_rows(
    gallery: Gallery, query_nD: Tensor, own_n: Tensor | None, m: int, *, cautious: bool = False
) -> tuple[Tensor, Tensor]:
    """Scores some queries against the whole gallery.

    Args:
        gallery: what is searched.
        query_nD: queries as `Gallery.queries` gives them.
        own_n: row of the gallery that is the query itself and is left out, or None.
        m: candidates per query, fewer than a tile has items.
        cautious: see `RunningTop`.

    Returns:
        Scores without −½‖q‖² and gallery rows (n×m), best first.
    """
    n, total = len(query_nD), len(gallery.rows)
    top = RunningTop(n, m, total, query_nD.device, cautious=cautious)
    everyone = slice(0, n)
    buffer = query_nD.new_empty(n, gallery.tile)
    for number, first in enumerate(range(0, total, gallery.tile), start=1):
        last = first + gallery.tile
        scores = gallery.scores(query_nD, None, slice(first, last), buffer)
        if own_n is not None:
            inside = ((own_n >= first) & (own_n < last)).nonzero().squeeze(1)
            scores[inside, own_n[inside] - first] = -torch.inf
        top.offer(everyone, scores, first, last)
        if number > 1 and _worth_raising(number) and last < total:
            top.raise_thresholds(everyone, last)
    top.sort(everyone)
    missed = top.incomplete()
    if len(missed):
        own = None if own_n is None else own_n[missed]
        again = scan_rows(gallery, query_nD[missed], own, m, cautious=True)
        top.scores[missed, :m], top.indices[missed, :m] = again
    return top.best(everyone)


def scan_symmetric(gallery: Gallery, m: int, workers: int) -> RunningTop:
    """Scores the gallery against itself with half of the products; results in the row order.

    Tiles are visited diagonal by diagonal, so that all queries see new tiles at one pace and their
    thresholds rise early.
    """
    tile, total = gallery.tile, len(gallery.rows)
    blocks = [slice(first, first + tile) for first in range(0, total, tile)]
    top = RunningTop(total, m, total, gallery.rows.device)
    locks = [Lock() for _ in blocks]
    buffers = local()

    def visit(pair: tuple[int, int]) -> None:
        offset, number = pair
        other = (number + offset) % len(blocks)
        rows, columns = blocks[number], blocks[other]
        # others may lag behind, and less be seen than this: thresholds then are lower than needed
        seen = min(total, (2 * offset + 1) * tile)
        if not hasattr(buffers, "scores"):
            buffers.scores = gallery.rows.new_empty(tile, tile)
        scores = gallery.scores(
            gallery.rows[rows], gallery.half_squares[rows], columns, buffers.scores
        )
        if offset == 0:
            scores.fill_diagonal_(-torch.inf)
        with locks[number]:
            if _worth_raising(offset - 1):
                top.raise_thresholds(rows, seen - 2 * tile)
            top.offer(rows, scores, columns.start, seen)
        if offset > 0:
            with locks[other]:
                top.offer(columns, scores.T, rows.start, seen)

    # the last diagonal of an even number of blocks would meet every pair twice
    most, even = len(blocks) // 2, len(blocks) % 2 == 0
    counts = [most if even and offset == most else len(blocks) for offset in range(most + 1)]
    pairs = [(offset, number) for offset, count in enumerate(counts) for number in range(count)]
    for_each(visit, pairs, workers)
    for_each(top.sort, blocks, workers)
    missed = top.incomplete()
    missed = missed[gallery.order[missed] < gallery.items]

    def rescan(part: Tensor) -> None:
        scores, indices = scan_rows(gallery, gallery.rows[part], part, m, cautious=True)
        top.scores[part, :m] = scores.add_(gallery.half_squares[part, None])
        top.indices[part, :m] = indices

    for_each(rescan, missed.split(tile) if len(missed) else (), workers)
    return top


def _worth_raising(number: int) -> bool:
    """Thresholds are worth refreshing when the data seen has doubled."""
    return number > 0 and number.bit_count() == 1
