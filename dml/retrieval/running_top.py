"""Keeps the best-scored gallery items of some queries while tiles of scores pass by.

Selecting costs more than multiplying if every score is looked at by a sort. So only entries that
beat the query's threshold are taken, and put aside unsorted until the end.

Shapes: n queries and c gallery items of one tile, m entries wanted, P entries found.
"""

from __future__ import annotations

import math
from threading import Lock

import torch
from torch import Tensor

from dml.retrieval import selection
from dml.retrieval.entries import Packing

ENTRY_BYTES = 8
SPARE = 8  # room for this many entries of a query beside m


class RunningTop:
    """The m best entries of each of n queries among the tiles seen so far.

    An entry is kept if it beats the query's threshold. Tiles are random samples of the gallery, so
    after a share f of it about m·f of the final m best have been seen: the threshold is set to the
    score of that rank (and some more), which lets far fewer entries pass than waiting for m of
    them. A query whose threshold turns out to have been too high is reported by `finish` and has to
    be scored again cautiously, with the m-th best so far as the threshold.

    Several threads may offer tiles at once.

    Args:
        queries: n, at most `most_queries(items)`.
        m: entries wanted for each, at most `items` less the query itself.
        items: size of the gallery.
        device: where the scores are.
        cautious: never miss an entry.
    """

    def __init__(
        self, queries: int, m: int, items: int, device: torch.device, *, cautious: bool = False
    ) -> None:
        self.queries = queries
        self.m = m
        self.items = items
        self.cautious = cautious
        self._packing = Packing(items)
        self._threshold_n = torch.full((queries,), -torch.inf, dtype=torch.float32, device=device)
        self._started = False
        self._parts: list[Tensor] = []
        self._taken = 0
        self._lock = Lock()

    @staticmethod
    def bytes_per_query(m: int) -> int:
        """Memory it takes for one query with m candidates."""
        return ENTRY_BYTES * 3 * (m + SPARE)

    def offer(self, tile_nc: Tensor, first: int, seen: int) -> None:
        """Takes from a tile all entries that beat the thresholds.

        Args:
            tile_nc: scores. A transposed matrix is fine.
            first: row of the gallery where the tile begins.
            seen: gallery items these queries have seen with this tile, or somewhat more.
        """
        with self._lock:
            if not self._started:
                self._start(tile_nc, seen)
            threshold_n = self._threshold_n
        # another thread may raise the thresholds meanwhile: then more is found than needed
        found = selection.above_threshold(tile_nc, threshold_n, most=self._room)
        row_P, column_P, value_P = found or self._best_of(tile_nc)
        entries_P = self._packing.pack(row_P, column_P.add_(first), value_P)
        with self._lock:
            self._parts.append(entries_P)
            self._taken += len(entries_P)
            if found is None or self._taken > 2 * self._room:
                self._keep_best(seen)

    def raise_thresholds(self, seen: int) -> None:
        """Sets the thresholds to what the share seen allows."""
        rank = self._rank(seen)
        with self._lock:
            _, score_nw = self._best(range(rank - 1, rank))
            self._threshold_n = torch.maximum(self._threshold_n, score_nw[:, 0])

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the m best entries of each query, and forgets all.

        Returns:
            Scores (n×m) and gallery rows (n×m, int32), best first; numbers of the queries that may
            have missed an entry and have to be scored again.
        """
        with self._lock:
            entries_nm, score_nm = self._best(range(self.m))
            missed = (score_nm[:, -1] < self._threshold_n).nonzero().squeeze(1)
            self._parts.clear()
        return score_nm, self._packing.columns(entries_nm), missed

    @property
    def _room(self) -> int:
        """How many entries are taken from one tile; twice as many are put aside before a sort."""
        return self.queries * (self.m + SPARE)

    def _rank(self, seen: int) -> int:
        """The rank in a sample of `seen` items that is surely not above rank m in the gallery."""
        share = seen / self.items
        if self.cautious or share >= 1:
            return self.m
        # drawing without replacement: the number of the m best in the sample is hypergeometric
        expected, deviation = self.m * share, math.sqrt(self.m * share * (1 - share))
        return min(self.m, math.ceil(expected + 4.5 * deviation + 1.5))

    def _start(self, tile_nc: Tensor, seen: int) -> None:
        """Sets the first thresholds from a tile, unless they would let most of it pass."""
        self._started = True
        rank = self._rank(seen)
        if rank <= tile_nc.shape[1] // 2:
            ranked_n = selection.kth_largest(tile_nc, rank)
            # just below, so that the entry of this rank is taken too
            self._threshold_n = ranked_n.nextafter(torch.full_like(ranked_n, -torch.inf))

    def _best_of(self, tile_nc: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Finds the best of a tile that has more good entries than there is room for."""
        value_nw, column_nw = tile_nc.topk(min(self.m, tile_nc.shape[1]), dim=1)
        row_nw = torch.arange(len(tile_nc), device=tile_nc.device)[:, None].expand_as(column_nw)
        return row_nw.flatten(), column_nw.flatten(), value_nw.flatten()

    def _keep_best(self, seen: int) -> None:
        """Keeps what can be among the m best and raises the thresholds accordingly."""
        entries_nw, score_nw = self._best(range(self._rank(seen)))
        # what is dropped has at most the threshold, like all that is not taken from now on
        self._threshold_n = torch.maximum(self._threshold_n, score_nw[:, -1])
        self._parts = [entries_nw[score_nw > -torch.inf]]
        self._taken = len(self._parts[0])

    def _best(self, ranks: range) -> tuple[Tensor, Tensor]:
        """Returns the entries at some ranks of each query and their scores (n×w), −∞ if absent."""
        entries_P = selection.ascending(torch.cat(self._parts))
        self._parts = [entries_P]
        ends_n = self._packing.starts(entries_P, self.queries)
        place_nw = ends_n[:-1, None] + torch.arange(
            ranks.start, ranks.stop, device=entries_P.device
        )
        absent_nw = place_nw >= ends_n[1:, None]
        place_nw.clamp_(max=len(entries_P) - 1)
        entries_nw = entries_P.index_select(0, place_nw.flatten()).view_as(place_nw)
        return entries_nw, self._packing.scores(entries_nw).masked_fill_(absent_nw, -torch.inf)
