"""Keeps the best-scored gallery items of every query while tiles of scores pass by.

Selecting costs more than multiplying if every score is looked at by a sort. So only entries that
beat the query's threshold are taken, and put aside unsorted until the end.

Shapes: n queries and c gallery items of one tile, m entries wanted, P entries found.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dml.retrieval import selection


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

    Attributes:
        scores: the entries put aside for each query, −∞ where there are none yet.
        indices: their gallery rows.
    """

    def __init__(
        self, queries: int, m: int, items: int, device: torch.device, *, cautious: bool = False
    ) -> None:
        self.m = m
        self.items = items
        self.cautious = cautious
        self.width = self._width(m)
        self.scores = torch.full(
            (queries, self.width), -torch.inf, dtype=torch.float32, device=device
        )
        self.indices = torch.zeros(queries, self.width, dtype=torch.int32, device=device)
        self.filled = torch.zeros(queries, dtype=torch.long, device=device)
        self.threshold = torch.full((queries,), -torch.inf, dtype=torch.float32, device=device)

    @staticmethod
    def _width(m: int) -> int:
        return 3 * m + 32

    @classmethod
    def bytes_per_query(cls, m: int) -> int:
        """Memory it takes for one query with m candidates."""
        return 8 * cls._width(m)

    def best(self, queries: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Returns scores and gallery rows (n×m) of some queries, best first, after `sort`."""
        return self.scores[queries, : self.m], self.indices[queries, : self.m]

    def incomplete(self) -> Tensor:
        """Returns the queries that may have missed an entry, after `sort`."""
        return (self.scores[:, self.m - 1] < self.threshold).nonzero().squeeze(1)

    def offer(self, rows: slice, tile_nc: Tensor, first: int, seen: int) -> None:
        """Takes from a tile all entries that beat the thresholds.

        Args:
            rows: the queries of the tile.
            tile_nc: scores. A transposed matrix is fine.
            first: row of the gallery where the tile begins.
            seen: gallery items these queries have seen with this tile, or somewhat more.
        """
        if self.threshold[rows.start] == -torch.inf and not self._start(rows, tile_nc, seen):
            self._sort_in(rows, tile_nc, first, seen)
            return
        row_P, column_P, value_P = selection.beyond(tile_nc, self.threshold[rows])
        counts_n = torch.bincount(row_P, minlength=len(tile_nc))
        if self._overflows(rows, counts_n):
            self._make_room(rows, seen)
            if self._overflows(rows, counts_n):
                self._sort_in(rows, tile_nc, first, seen)
                return
        # the i-th entry found for a query goes to the i-th free place of its row
        free_n = torch.arange(rows.start, rows.stop, device=row_P.device) * self.width
        free_n += self.filled[rows] - (counts_n.cumsum(dim=0) - counts_n)
        place_P = free_n.index_select(0, row_P).add_(torch.arange(len(row_P), device=row_P.device))
        self.scores.view(-1).scatter_(0, place_P, value_P)
        self.indices.view(-1).scatter_(0, place_P, column_P.add_(first).int())
        self.filled[rows] += counts_n

    def raise_thresholds(self, rows: slice, seen: int) -> None:
        """Sets the thresholds of these queries to what the share seen allows."""
        rank = self._rank(seen)
        width = int(self.filled[rows].max())
        if rank <= width:
            ranked_n = selection.ranked(self.scores[rows, :width], rank)
            self.threshold[rows] = torch.maximum(self.threshold[rows], ranked_n)

    def sort(self, rows: slice) -> None:
        """Keeps the m best entries of these queries, in order."""
        width = max(self.m, int(self.filled[rows].max()))
        scores_nm, indices_nm = selection.best(
            self.scores[rows, :width], self.indices[rows, :width], self.m
        )
        self.indices[rows, : self.m] = indices_nm
        self.scores[rows, : self.m] = scores_nm
        self.scores[rows, self.m : width] = -torch.inf
        self.filled[rows] = self.m

    def _rank(self, seen: int) -> int:
        """The rank in a sample of `seen` items that is surely not above rank m in the gallery."""
        expected = self.m * seen / self.items
        if self.cautious or seen >= self.items:
            return self.m
        return min(self.m, math.ceil(expected + 4.0 * math.sqrt(expected) + 2.0))

    def _start(self, rows: slice, tile_nc: Tensor, seen: int) -> bool:
        """Sets the first thresholds from a tile, unless that would take most of it."""
        rank = self._rank(seen)
        if rank > tile_nc.shape[1] // 2:
            return False
        # just below, so that the entry of this rank is taken too
        ranked_n = selection.ranked(tile_nc, rank)
        self.threshold[rows] = ranked_n.nextafter(torch.full_like(ranked_n, -torch.inf))
        return True

    def _overflows(self, rows: slice, counts_n: Tensor) -> bool:
        return int((self.filled[rows] + counts_n).max()) > self.width

    def _make_room(self, rows: slice, seen: int) -> None:
        """Drops what is not among the m best so far; raises the thresholds while at it."""
        self.sort(rows)
        ranked_n = self.scores[rows, self._rank(seen) - 1]
        self.threshold[rows] = torch.maximum(self.threshold[rows], ranked_n)

    def _sort_in(self, rows: slice, tile_nc: Tensor, first: int, seen: int) -> None:
        """What `offer` does, for tiles with more good entries than there is room for."""
        scores, indices = tile_nc.topk(min(self.m, tile_nc.shape[1]), dim=1)
        self.sort(rows)
        part = slice(self.m, self.m + scores.shape[1])
        self.scores[rows, part] = scores
        self.indices[rows, part] = indices.add_(first).int()
        self.filled[rows] = part.stop
        self._make_room(rows, seen)
