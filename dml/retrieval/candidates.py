"""Proposes the best-scored gallery items of every query from float32 products, tile by tile.

Shapes: n queries and c gallery items of one tile, m candidates per query, P entries, E = D + 2.

Selecting costs more than multiplying if every score is looked at by a sort. So the maximum over
groups of 16 scores is taken first, only groups whose maximum beats the query's m-th best so far are
opened, and the few entries found wait in a buffer until it is worth merging them. Where the queries
are their own gallery, a tile serves its rows and its columns: half of the product suffices.
"""

from __future__ import annotations

import math
from functools import partial
from threading import Lock, local

import torch
from torch import Tensor

from dml.retrieval.exact import CHUNK_BYTES
from dml.retrieval.parallel import for_each
from dml.retrieval.product import fastest_product

GROUP = 16
PADDING_SCORE = -16.0  # below every true score, which are at least −2


class Gallery:
    """Centered, scaled and shuffled float32 rows [g, −½‖g‖², 1]; padded to whole tiles.

    With queries [q, 1, −½‖q‖²] a product of the two gives −½‖q − g‖². The order of the distances
    is the same around any center, and rounding errors are smallest near the middle of the data, so
    that float32 tells even nearly collapsed embeddings apart. The fixed shuffle makes every tile a
    fair sample of the whole gallery, however the data is ordered.

    Attributes:
        rows: N' × E, N' ≥ N.
        items: N.
        order: gallery index of each row (N'), N and above for padding.
        place: row of each gallery index (N').
        center: D values, float64.
        scale: a power of two that brings all norms into [0, 1].
        largest: largest norm of a scaled row.
        multiply: a·bᵀ of queries and rows, given a buffer for it.
    """

    def __init__(self, gallery_ND: Tensor, query_BD: Tensor, tile: int) -> None:
        N, D = gallery_ND.shape
        device = gallery_ND.device
        step = max(1, CHUNK_BYTES // (32 * D))
        middle = torch.zeros(D, dtype=torch.float64, device=device)
        for part in gallery_ND.split(step):
            middle += part.sum(dim=0, dtype=torch.float64)
        self.center = middle / N
        self.tile = tile
        largest = self._largest_norm(gallery_ND, step)
        both = (
            largest if query_BD is gallery_ND else max(largest, self._largest_norm(query_BD, step))
        )
        self.scale = math.ldexp(1.0, -math.frexp(both)[1])
        self.largest = largest * self.scale

        # padding is spread over all tiles, for each to be a fair sample
        total = -(-N // tile) * tile
        generator = torch.Generator().manual_seed(0)
        self.items = N
        self.order = torch.randperm(total, generator=generator).to(device)
        self.place = torch.empty_like(self.order)
        self.place[self.order] = torch.arange(total, device=device)
        self.rows = torch.empty(total, D + 2, device=device)
        for order, rows in zip(self.order.split(step), self.rows.split(step), strict=True):
            centered, half_square = self._center(gallery_ND[order.clamp(max=N - 1)])
            rows[:, :D] = centered
            rows[:, D] = half_square
        self.rows[self.place[N:], :D] = 0.0
        self.rows[self.place[N:], D] = PADDING_SCORE
        self.rows[:, D + 1] = 1.0
        self.multiply = fastest_product(D + 2, device)

    def _center(self, rows_nD: Tensor) -> tuple[Tensor, Tensor]:
        centered = (rows_nD.double() - self.center).mul_(self.scale)
        return centered, centered.square().sum(dim=1).mul_(-0.5)

    def _largest_norm(self, rows_ND: Tensor, step: int) -> float:
        return max(float((p.double() - self.center).norm(dim=1).max()) for p in rows_ND.split(step))

    def as_query(self, rows: slice | Tensor) -> Tensor:
        """Returns gallery rows in the form of queries (n×E)."""
        block = self.rows[rows]
        D = block.shape[1] - 2
        return torch.cat([block[:, :D], block[:, D + 1 :], block[:, D : D + 1]], dim=1)

    def queries(self, query_nD: Tensor) -> tuple[Tensor, Tensor]:
        """Returns queries (n×E, float32) and their norms (n, float64)."""
        centered, half_square = self._center(query_nD)
        columns = [centered, torch.ones_like(half_square)[:, None], half_square[:, None]]
        return torch.cat(columns, dim=1).float(), (-2 * half_square).sqrt()


class RunningTop:
    """The m best entries of every query among the tiles seen so far.

    An entry is kept if it beats the query's threshold. Tiles are random samples of the gallery, so
    after a share f of it about m·f of the final m best have been seen: the threshold is set to the
    score of that rank (and some more), which lets far fewer entries pass than waiting for m of
    them. A query whose threshold turns out to have been too high is `incomplete` and is scored
    again cautiously, with the m-th best so far as the threshold.

    Args:
        queries: how many.
        m: entries wanted for each.
        items: size of the gallery.
        device: where the scores are.
        cautious: never miss an entry.
    """

    def __init__(
        self, queries: int, m: int, items: int, device: torch.device, *, cautious: bool = False
    ) -> None:
        self.m = m
        self.items = items
        self.cautious = cautious
        self.width = self._width(m)
        # where a good part of all groups would be opened, smaller ones spare more
        self.group = GROUP if m * 96 < items else GROUP // 4
        self.scores = torch.full((queries, self.width), -torch.inf, device=device)
        self.indices = torch.zeros(queries, self.width, dtype=torch.int32, device=device)
        self.filled = torch.zeros(queries, dtype=torch.long, device=device)
        self.threshold = torch.full((queries,), -torch.inf, device=device)

    @staticmethod
    def _width(m: int) -> int:
        return 3 * m + 32

    @classmethod
    def bytes_per_query(cls, m: int) -> int:
        """Memory it takes for one query with m candidates."""
        return 8 * cls._width(m)

    def best(self, queries: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Returns scores and gallery rows (n×m) of some queries, best first, after a merge."""
        return self.scores[queries, : self.m], self.indices[queries, : self.m]

    def incomplete(self) -> Tensor:
        """Returns the queries that may have missed an entry, after the last merge."""
        return (self.scores[:, self.m - 1] < self.threshold).nonzero().squeeze(1)

    def _rank(self, seen: int) -> int:
        """The rank in a sample of `seen` items that is surely not above rank m in the gallery."""
        expected = self.m * seen / self.items
        if self.cautious or seen >= self.items:
            return self.m
        return min(self.m, math.ceil(expected + 3.5 * math.sqrt(expected) + 1))

    def offer(
        self, rows: slice, tile: Tensor, first: int, seen: int, *, transposed: bool = False
    ) -> None:
        """Takes from a tile all entries that beat the thresholds.

        Args:
            rows: the queries of the tile.
            tile: n×c scores, c a multiple of the group size; c×n if `transposed`.
            first: row of the gallery where the tile begins.
            seen: gallery items these queries have seen with this tile, or somewhat more.
            transposed: the queries are the tile's columns.
        """
        if transposed:
            grouped = tile.view(self.group, -1, tile.shape[1])
            largest = grouped.amax(dim=0).T
        else:
            grouped = tile.view(tile.shape[0], self.group, -1)
            largest = grouped.amax(dim=1)
        threshold_n = self.threshold[rows]
        if threshold_n[0] == -torch.inf:
            rank = self._rank(seen)
            if rank == self.m or rank > largest.shape[1] // 2:
                self._sort_in(rows, tile.T if transposed else tile, first, seen)
                return
            # the r-th largest of the maxima is at most the r-th largest entry
            threshold_n = largest.topk(rank, dim=1).values[:, -1]
            self.threshold[rows] = threshold_n
        row_P, group_P = (largest > threshold_n[:, None]).nonzero(as_tuple=True)
        values_PG = grouped[:, group_P, row_P].T if transposed else grouped[row_P, :, group_P]
        entry, member = (values_PG > threshold_n[row_P, None]).nonzero(as_tuple=True)
        row_P = row_P[entry]
        column_P = member * largest.shape[1] + group_P[entry] + first
        counts_n = torch.bincount(row_P, minlength=len(threshold_n))
        if int((self.filled[rows] + counts_n).max()) > self.width:
            self.merge(rows, seen)
            if int((self.filled[rows] + counts_n).max()) > self.width:
                self._sort_in(rows, tile.T if transposed else tile, first, seen)
                return
        offset_n = self.filled[rows] - (counts_n.cumsum(dim=0) - counts_n)
        place_P = offset_n[row_P] + torch.arange(len(row_P), device=row_P.device)
        self.scores[rows].index_put_((row_P, place_P), values_PG[entry, member])
        self.indices[rows].index_put_((row_P, place_P), column_P.int())
        self.filled[rows] += counts_n

    def _sort_in(self, rows: slice, tile_nc: Tensor, first: int, seen: int) -> None:
        """What `offer` does, for tiles with more good entries than the buffer holds."""
        scores, indices = tile_nc.topk(min(self.m, tile_nc.shape[1]), dim=1)
        self.merge(rows, seen)
        self.scores[rows, self.m : self.m + scores.shape[1]] = scores
        self.indices[rows, self.m : self.m + scores.shape[1]] = indices.add_(first).int()
        self.merge(rows, seen)

    def merge(self, rows: slice, seen: int) -> None:
        """Brings the waiting entries of these queries in order and raises the thresholds."""
        scores, order = self.scores[rows].topk(self.m, dim=1)
        self.indices[rows, : self.m] = self.indices[rows].gather(1, order)
        self.scores[rows, : self.m] = scores
        self.scores[rows, self.m :] = -torch.inf
        self.filled[rows] = self.m
        self.threshold[rows] = torch.maximum(self.threshold[rows], scores[:, self._rank(seen) - 1])


def scan_rows(
    gallery: Gallery, query_nE: Tensor, own_n: Tensor | None, m: int, *, cautious: bool = False
) -> tuple[Tensor, Tensor]:
    """Scores some queries against the whole gallery.

    Args:
        gallery: what is searched.
        query_nE: queries as `Gallery.queries` gives them.
        own_n: row of the gallery that is the query itself and is left out, or None.
        m: candidates per query, at most the width of a tile less one.
        cautious: see `RunningTop`.

    Returns:
        Scores and gallery rows (n×m), best first.
    """
    n, total = len(query_nE), len(gallery.rows)
    top = RunningTop(n, m, total, query_nE.device, cautious=cautious)
    everyone = slice(0, n)
    buffer = query_nE.new_empty(n, gallery.tile)
    for number, first in enumerate(range(0, total, gallery.tile), start=1):
        last = first + gallery.tile
        scores = gallery.multiply(query_nE, gallery.rows[first:last], buffer)
        if own_n is not None:
            inside = ((own_n >= first) & (own_n < last)).nonzero().squeeze(1)
            scores[inside, own_n[inside] - first] = -torch.inf
        top.offer(everyone, scores, first, last)
        # thresholds are worth refreshing when the data has doubled
        if number.bit_count() == 1 or last == total:
            top.merge(everyone, last)
    missed = top.incomplete()
    if len(missed):
        own = None if own_n is None else own_n[missed]
        again = scan_rows(gallery, query_nE[missed], own, m, cautious=True)
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

    def visit(number: int, offset: int, seen: int) -> None:
        other = (number + offset) % len(blocks)
        rows, columns = blocks[number], blocks[other]
        if not hasattr(buffers, "scores"):
            buffers.scores = gallery.rows.new_empty(tile, tile)
        scores = gallery.multiply(gallery.as_query(rows), gallery.rows[columns], buffers.scores)
        if offset == 0:
            scores.fill_diagonal_(-torch.inf)
        with locks[number]:
            top.offer(rows, scores, columns.start, seen)
        if offset > 0:
            with locks[other]:
                top.offer(columns, scores, rows.start, seen, transposed=True)

    for offset in range(len(blocks) // 2 + 1):
        # the last diagonal of an even number of blocks would meet every pair twice
        count = len(blocks) if 2 * offset != len(blocks) else offset
        seen = min(total, (2 * offset + 1) * tile)
        for_each(partial(visit, offset=offset, seen=seen), range(count), workers)
        if offset.bit_count() == 1 or seen == total:
            for_each(partial(top.merge, seen=seen), blocks, workers)
    missed = top.incomplete()
    missed = missed[gallery.order[missed] < gallery.items]

    def rescan(part: Tensor) -> None:
        again = scan_rows(gallery, gallery.as_query(part), part, m, cautious=True)
        top.scores[part, :m], top.indices[part, :m] = again

    for_each(rescan, missed.split(tile) if len(missed) else (), workers)
    return top
