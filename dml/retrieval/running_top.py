"""Keeps the best-scored gallery items of every query while tiles of scores pass by.

Selecting costs more than multiplying if every score is looked at by a sort. So the maximum over
groups of scores is taken first, only groups whose maximum beats the query's threshold are opened,
and the few entries found are put aside unsorted until the end.

Shapes: n queries and c gallery items of one tile, G scores of a group, W = c / G groups, m entries
wanted, P groups or entries found.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

GROUP = 16


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
        """Returns scores and gallery rows (n×m) of some queries, best first, after `sort`."""
        return self.scores[queries, : self.m], self.indices[queries, : self.m]

    def incomplete(self) -> Tensor:
        """Returns the queries that may have missed an entry, after `sort`."""
        return (self.scores[:, self.m - 1] < self.threshold).nonzero().squeeze(1)

    def offer(self, rows: slice, tile_nc: Tensor, first: int, seen: int) -> None:
        """Takes from a tile all entries that beat the thresholds.

        Args:
            rows: the queries of the tile.
            tile_nc: scores; c a multiple of the group size. A transposed matrix is fine.
            first: row of the gallery where the tile begins.
            seen: gallery items these queries have seen with this tile, or somewhat more.
        """
        largest_nW = _group_maxima(tile_nc, self.group)
        if self.threshold[rows.start] == -torch.inf and not self._start(rows, largest_nW, seen):
            self._sort_in(rows, tile_nc, first, seen)
            return
        row_P, column_P, value_P = _beyond(tile_nc, largest_nW, self.threshold[rows])
        counts_n = torch.bincount(row_P, minlength=len(largest_nW))
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
            ranked_nr = self.scores[rows, :width].topk(rank, dim=1).values
            self.threshold[rows] = torch.maximum(self.threshold[rows], ranked_nr[:, -1])

    def sort(self, rows: slice) -> None:
        """Keeps the m best entries of these queries, in order."""
        width = max(self.m, int(self.filled[rows].max()))
        scores_nm, order_nm = self.scores[rows, :width].topk(self.m, dim=1)
        self.indices[rows, : self.m] = self.indices[rows, :width].gather(1, order_nm)
        self.scores[rows, : self.m] = scores_nm
        self.scores[rows, self.m : width] = -torch.inf
        self.filled[rows] = self.m

    def _rank(self, seen: int) -> int:
        """The rank in a sample of `seen` items that is surely not above rank m in the gallery."""
        expected = self.m * seen / self.items
        if self.cautious or seen >= self.items:
            return self.m
        return min(self.m, math.ceil(expected + 3.5 * math.sqrt(expected) + 1))

    def _start(self, rows: slice, largest_nW: Tensor, seen: int) -> bool:
        """Sets the first thresholds from a tile's maxima, unless they are too few to tell."""
        rank = self._rank(seen)
        if rank == self.m or rank > largest_nW.shape[1] // 2:
            return False
        # the r-th largest of the maxima is at most the r-th largest entry
        self.threshold[rows] = largest_nW.topk(rank, dim=1).values[:, -1]
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


def _group_maxima(tile_nc: Tensor, group: int) -> Tensor:
    """Returns the maxima (n×W) of groups of columns; group w holds columns w, w + W, w + 2W, …

    Both ways read the memory in its order; `amax` across it takes forty times as long.
    """
    if tile_nc.stride(0) == 1:
        return tile_nc.T.unflatten(0, (group, -1)).amax(dim=0).T.contiguous()
    while group > 1:  # pairs of halves: `amax` is slow for most numbers of groups
        half = tile_nc.shape[1] // 2
        tile_nc = torch.maximum(tile_nc[:, :half], tile_nc[:, half:])
        group //= 2
    return tile_nc


def _beyond(
    tile_nc: Tensor, largest_nW: Tensor, threshold_n: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Finds a tile's entries above their query's threshold; rows (P) ascend.

    Args:
        tile_nc: scores, in row-major or column-major order.
        largest_nW: maxima of its groups; group w holds columns w, w + W, w + 2W, …
        threshold_n: one for each row.

    Returns:
        Rows, columns and values (P each).
    """
    W = largest_nW.shape[1]
    group = tile_nc.shape[1] // W
    down, across = tile_nc.stride()
    opened_P = (largest_nW > threshold_n[:, None]).flatten().nonzero().squeeze(1)
    row_P = opened_P // W
    group_P = opened_P - row_P * W
    members_G = torch.arange(group, device=tile_nc.device) * W
    # one-dimensional selections cost a third of indexing by rows and columns
    memory = tile_nc.as_strided((tile_nc.numel(),), (1,))
    address_PG = (row_P * down + group_P * across)[:, None] + members_G * across
    value_PG = memory.index_select(0, address_PG.view(-1)).view(-1, group)
    better = value_PG > threshold_n.index_select(0, row_P)[:, None]
    found_P = better.flatten().nonzero().squeeze(1)
    entry_P = found_P // group
    column_P = group_P.index_select(0, entry_P) + (found_P - entry_P * group) * W
    return row_P.index_select(0, entry_P), column_P, value_PG.view(-1).index_select(0, found_P)
