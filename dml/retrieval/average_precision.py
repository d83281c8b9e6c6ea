"""Mean average precision over the full ranking (mAP), exact and in bounded memory.

Average precision needs only the number of irrelevant items before each relevant item. For almost
all irrelevant items, float64 scores, computed tile by tile, are sufficient; items within the
rounding error of a relevant item are compared by exact distances, as in `exact_order`.

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, c items of one tile, P
pairs, R relevant items (the largest number in the chunk).
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.retrieval.exact_order import score_error, squared_distances
from dml.retrieval.inputs import Numbers, check_labeled, working_memory
from dml.retrieval.relevant_ranks import ClassMembers, sort_relevant

TILE = 2048
ENTRY_BYTES = 64  # size of the buffers per query and item
FLOAT64_UNIT = 2.0**-53


def mean_average_precision(
    embeddings: Numbers,
    labels: Numbers,
    gallery_embeddings: Numbers | None = None,
    gallery_labels: Numbers | None = None,
    *,
    memory_mb: float | None = None,
) -> float:
    """Returns the mean over queries of (1/R) Σ_i P(i)·rel(i), over all ranks i of the gallery.

    MAP@R of `retrieval_metrics` is this sum up to rank R. Ranking, ties and queries without a
    relevant item are treated as there.

    Args:
        embeddings: B×D queries, a tensor or a NumPy array.
        labels: B integers.
        gallery_embeddings: N×D items to rank; None: the queries are the gallery, and a query is not
            its own neighbor.
        gallery_labels: N integers, required with `gallery_embeddings`.
        memory_mb: bound on the size of the working buffers, as for `nearest_neighbors`.

        Returns:
            mAP, 0–1.

        Raises:
            ValueError: embeddings or labels are invalid, or no query has a relevant item.
    """
    query, searched, query_B, gallery_N = check_labeled(
        embeddings, labels, gallery_embeddings, gallery_labels
    )
    gallery = query if searched is None else searched
    self_B = torch.full_like(query_B, -1)
    if searched is None:
        self_B = torch.arange(len(query), device=query.device)
    counts = torch.bincount(gallery_N, minlength=int(query_B.max()) + 1)
    rows = (counts[query_B] > (self_B >= 0)).nonzero().squeeze(1)
    if not len(rows):
        raise ValueError("labels: no query has a relevant item in the gallery")
    members = ClassMembers(gallery_N)
    memory_bytes = working_memory(memory_mb, query.device)
    chunk = max(1, memory_bytes // (ENTRY_BYTES * min(TILE, len(gallery))))
    total = 0.0
    for part in rows.split(chunk):
        relevant = _rank_relevant(query[part], gallery, members, query_B[part], self_B[part])
        before_nR = _count_before(query[part], gallery, relevant, query_B[part], gallery_N)
        total += float(_average_precision(before_nR, relevant[0]).sum())
    return total / len(rows)


def _rank_relevant(
    query_nD: Tensor,
    gallery_ND: Tensor,
    members: ClassMembers,
    classes_n: Tensor,
    self_n: Tensor,
) -> tuple[Tensor, Tensor]:
    """Returns squared distances (n×R, padded with ∞) and gallery indices of relevant items."""
    pairs = members.pairs(classes_n)
    rows_P, squared_P, cols_P, first_n, counts_n = sort_relevant(
        query_nD, gallery_ND, *pairs, self_n
    )
    rank_P = torch.arange(len(rows_P), device=rows_P.device) - first_n[rows_P]
    squared_nR = squared_P.new_full((len(query_nD), int(counts_n.max())), torch.inf)
    index_nR = torch.full_like(squared_nR, -1, dtype=torch.long)
    squared_nR[rows_P, rank_P] = squared_P
    index_nR[rows_P, rank_P] = cols_P
    return squared_nR, index_nR


def _count_before(
    query_nD: Tensor,
    gallery_ND: Tensor,
    relevant: tuple[Tensor, Tensor],
    classes_n: Tensor,
    gallery_N: Tensor,
) -> Tensor:
    """Returns the number of irrelevant items before each relevant item (n×R)."""
    squared_nR = relevant[0]
    n, largest = squared_nR.shape
    next_nR = torch.cat([squared_nR, squared_nR.new_full((n, 1), torch.inf)], dim=1)
    begins_n = (largest + 1) * torch.arange(n, device=query_nD.device)[:, None]
    origin_D = gallery_ND[0].double()  # for equal embeddings, all products are exactly 0
    centered_nD = query_nD.double() - origin_D
    square_n = centered_nD.square().sum(dim=1)
    counts = torch.zeros(n * (largest + 1), dtype=torch.long, device=query_nD.device)
    for first in range(0, len(gallery_ND), TILE):
        tile_cD = gallery_ND[first : first + TILE].double() - origin_D
        square_c = tile_cD.square().sum(dim=1)
        squared_nc = square_n[:, None] + square_c - 2 * centered_nD @ tile_cD.T
        norm_c = float(square_c.max().sqrt())
        error_n = 4 * score_error(square_n.sqrt(), norm_c, query_nD.shape[1], FLOAT64_UNIT)
        rank_nc = torch.searchsorted(squared_nR, squared_nc - error_n[:, None])
        unsure_nc = next_nR.gather(1, rank_nc) <= squared_nc.add_(error_n[:, None])
        relevant_nc = gallery_N[first : first + TILE] == classes_n[:, None]
        rows_P, tile_P = (unsure_nc & ~relevant_nc).nonzero(as_tuple=True)
        if len(rows_P):
            cols_P = tile_P + first
            exact_P = squared_distances(query_nD, gallery_ND, rows_P, cols_P)
            rank_nc[rows_P, tile_P] = _exact_ranks(relevant, rows_P, exact_P, cols_P, n * TILE)
        rank_nc.masked_fill_(relevant_nc, largest)  # a last column, which is not read
        counts += torch.bincount(rank_nc.add_(begins_n).view(-1), minlength=len(counts))
    return counts.view(n, largest + 1).cumsum(dim=1)[:, :largest]


def _exact_ranks(
    relevant: tuple[Tensor, Tensor], rows_P: Tensor, squared_P: Tensor, cols_P: Tensor, size: int
) -> Tensor:
    """Returns the number of relevant items before the item of each pair, `size` pairs at a time."""
    squared_nR, index_nR = relevant
    ranks = []
    step = max(1, size // squared_nR.shape[1])
    for rows, squared, cols in zip(
        rows_P.split(step), squared_P.split(step), cols_P.split(step), strict=True
    ):
        tied = (squared_nR[rows] == squared[:, None]) & (index_nR[rows] < cols[:, None])
        ranks.append(((squared_nR[rows] < squared[:, None]) | tied).sum(dim=1))
    return torch.cat(ranks)


def _average_precision(before_nR: Tensor, squared_nR: Tensor) -> Tensor:
    """Returns the average precision of each query (n)."""
    rank_R = torch.arange(1, before_nR.shape[1] + 1, device=before_nR.device).double()
    exists_nR = squared_nR.isfinite()
    precision_nR = (rank_R / (rank_R + before_nR)).masked_fill(~exists_nR, 0.0)
    return precision_nR.sum(dim=1) / exists_nR.sum(dim=1)
