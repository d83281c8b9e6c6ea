"""Average precision over all ranks, by counting the items before each relevant one.

The average precision of a query is (1/R) Σ_i i/rank_i over its R relevant items in order. The rank
of an item is the number of scores above its own, which a comparison of all scores counts in a
hundredth of the time of a sort. Scores within the bound on the rounding error are compared exactly.

Shapes: B queries, N gallery items, N' rows with padding, n queries of one chunk, P pairs of a query
and a relevant item.
"""

from __future__ import annotations

from threading import local

import numpy as np
import torch
from torch import Tensor

from dml.core.torch_settings import full_float32
from dml.retrieval.exact.cpu_search import CpuSearch
from dml.retrieval.exact.order import squared_distances
from dml.retrieval.exact.relevant_ranks import SLACK, ClassMembers, sort_relevant
from dml.retrieval.exact.scaled_gallery import ScaledGallery, tile_size

FEW_RELEVANT = 128  # mean number of relevant items, above which a sort is faster
MOST_OPEN = 64  # mean number of items whose order float32 leaves open, for each relevant one


def count_average_precision(
    query_BD: Tensor,
    gallery_ND: Tensor,
    self_B: Tensor,
    classes: tuple[Tensor, Tensor],
    memory_bytes: int,
) -> tuple[Tensor, Tensor] | None:
    """Returns the queries with a relevant item, ascending, and their average precision (float64).

    Args:
        query_BD: the queries, on a CPU.
        gallery_ND: the gallery, which may be the same tensor.
        self_B: position of each query in the gallery, which is not ranked; −1 for none.
        classes: classes of all queries (B) and gallery items (N), 0..C−1.
        memory_bytes: bound on the working buffers, in addition to a float32 copy of the gallery.

    Returns:
        None where a sort is faster: on a GPU, for many relevant items, or for many near ties.
    """
    members = ClassMembers(classes[1])
    numbers = torch.zeros(int(max(part.max() for part in classes)) + 1, dtype=torch.long)
    numbers[: len(members.counts)] = members.counts.cpu()
    relevant_B = numbers[classes[0].cpu()] - (self_B.cpu() >= 0).long()
    rows = (relevant_B > 0).nonzero().squeeze(1)
    if query_BD.is_cuda or not len(rows) or relevant_B[rows].double().mean() > FEW_RELEVANT:
        return None
    scaled = ScaledGallery(gallery_ND, query_BD, tile_size(len(gallery_ND), 1))
    counter = _Counter(query_BD, gallery_ND, self_B, members, scaled)
    engine = CpuSearch(scaled, memory_bytes)
    size = max(1, min(engine.max_queries, engine.memory_bytes // (4 * len(scaled.rows))))
    buffers = local()

    def score(part: Tensor) -> Tensor | None:
        if counter.has_failed:
            return None
        if not hasattr(buffers, "scores"):
            buffers.scores = torch.empty(size, len(scaled.rows), dtype=torch.float32)
        query_nE = scaled.queries(query_BD[part])
        scores = buffers.scores[: len(part)]
        engine.multiply(query_nE, scaled.rows, scores)
        return counter.average_precision(part, classes[0][part], query_nE, scores)

    with full_float32(query_BD.device), engine.threads() as for_each:
        values = for_each(score, rows.split(size))
    if any(value is None for value in values):
        return None
    return rows, torch.cat(values)


class _Counter:
    """Counts the items before each relevant item of a chunk of queries.

    Args:
        query_BD, gallery_ND, self_B: see `count_average_precision`.
        members: items of each class.
        scaled: the gallery, scaled.

    Attributes:
        has_failed: whether there were too many near ties.
    """

    def __init__(
        self,
        query_BD: Tensor,
        gallery_ND: Tensor,
        self_B: Tensor,
        members: ClassMembers,
        scaled: ScaledGallery,
    ) -> None:
        self.query, self.gallery, self.self_index = query_BD, gallery_ND, self_B
        self.members, self.scaled = members, scaled
        self.has_failed = False

    def average_precision(
        self, rows_n: Tensor, classes_n: Tensor, query_nE: Tensor, scores_nN: Tensor
    ) -> Tensor | None:
        """Returns the average precision of queries (n), or None for too many near ties."""
        query_nD, self_n = self.query[rows_n], self.self_index[rows_n]
        pairs = self.members.pairs(classes_n)
        sorted_pairs = sort_relevant(query_nD, self.gallery, *pairs, self_n)
        rows_P, squared_P, cols_P, first_n, counts_n = sorted_pairs
        error_P = (SLACK * self.scaled.error(query_nE[:, -1]))[rows_P]
        score_P = -0.5 * (squared_P * self.scaled.scale) * self.scaled.scale
        above_P, below_P = (score_P + error_P).float(), (score_P - error_P).float()
        closer_P, open_pairs, open_rows = self._count(rows_P, above_P, below_P, self_n, scores_nN)
        if self.has_failed:
            return None
        items = self.scaled.order[open_rows]
        is_other = items != self_n[rows_P[open_pairs]]
        open_pairs, items = open_pairs[is_other], items[is_other]
        squared = squared_distances(query_nD, self.gallery, rows_P[open_pairs], items)
        target = squared_P[open_pairs]
        precedes = (squared < target) | ((squared == target) & (items < cols_P[open_pairs]))
        closer_P += torch.bincount(open_pairs[precedes], minlength=len(closer_P))
        place_P = torch.arange(len(rows_P)) - first_n[rows_P] + 1
        precision_P = place_P.double() / (closer_P + 1)
        return torch.bincount(rows_P, precision_P, minlength=len(rows_n)) / counts_n

    def _count(
        self, rows_P: Tensor, above_P: Tensor, below_P: Tensor, self_n: Tensor, scores_nN: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the numbers of items that are surely closer (P), and open pairs and rows.

        Of a single open row, which is the relevant item itself, nothing is open.
        """
        own_n = torch.where(self_n >= 0, self.scaled.row_of_item[self_n.clamp(min=0)], -1).tolist()
        closer_P = np.empty(len(rows_P), np.int64)
        pairs: list[np.ndarray] = [np.empty(0, np.int64)]
        rows: list[np.ndarray] = [np.empty(0, np.int64)]
        total = 0
        scores = scores_nN.numpy()
        limits = zip(rows_P.tolist(), above_P.numpy(), below_P.numpy(), strict=True)
        for pair, (number, above, below) in enumerate(limits):
            score_N = scores[number]
            closer = np.count_nonzero(score_N > above)
            if np.count_nonzero(score_N > below) > closer + 1:
                is_open = (score_N > below) & (score_N <= above)
                rows.append(np.flatnonzero(is_open))
                pairs.append(np.full(len(rows[-1]), pair))
                total += len(rows[-1])
                if total > MOST_OPEN * len(rows_P):
                    self.has_failed = True
                    break
            is_itself = own_n[number] >= 0 and score_N[own_n[number]] > above
            closer_P[pair] = closer - is_itself
        open_pairs = torch.from_numpy(np.concatenate(pairs))
        open_rows = torch.from_numpy(np.concatenate(rows))
        return torch.from_numpy(closer_P), open_pairs, open_rows
