"""Mean average precision over the full ranking (mAP).

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk.
"""

from __future__ import annotations

import torch

from dml.retrieval.inputs import Numbers, check_labeled, working_memory

ENTRY_BYTES = 64  # size of the buffers per query and item


def mean_average_precision(
    embeddings: Numbers,
    labels: Numbers,
    gallery_embeddings: Numbers | None = None,
    gallery_labels: Numbers | None = None,
    *,
    memory_mb: float | None = None,
) -> float:
    """Returns the mean over queries of (1/R) Σ_i P(i)·rel(i), over all ranks i of the gallery.

    MAP@R of `retrieval_metrics` is this sum up to rank R. Ties and queries without a relevant item
    are treated as there; distances come from float64 products.

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
    origin_D = query[0].double()  # for equal embeddings, all products are exactly 0
    query_BD = query.double() - origin_D
    gallery_ND = query_BD if searched is None else searched.double() - origin_D
    square_N = gallery_ND.square().sum(dim=1)
    rank_N = torch.arange(1, len(gallery_ND) + 1, device=query.device)
    rows_B = torch.arange(len(query_BD), device=query.device)
    values = []
    chunk = max(1, working_memory(memory_mb, query.device) // (ENTRY_BYTES * len(gallery_ND)))
    for rows_n in rows_B.split(chunk):
        further_nN = torch.addmm(square_N, query_BD[rows_n], gallery_ND.T, alpha=-2)
        if searched is None:
            further_nN[rows_n - rows_n[0], rows_n] = torch.inf  # itself, which comes last
        hits_nN = gallery_N[further_nN.argsort(dim=1, stable=True)] == query_B[rows_n, None]
        hits_nN[:, -1] &= searched is not None
        precision_nN = hits_nN.cumsum(dim=1) / rank_N.double() * hits_nN
        counts_n = hits_nN.sum(dim=1)
        values.append((precision_nN.sum(dim=1) / counts_n)[counts_n > 0])
    if not len(found := torch.cat(values)):
        raise ValueError("labels: no query has a relevant item in the gallery")
    return float(found.mean())
