"""Candidates from faiss's flat search, as an alternative to the tiles of `scans`."""

from __future__ import annotations

import torch
from torch import Tensor

from dml.retrieval.gallery import Gallery


def scan_faiss(
    gallery: Gallery, query_nD: Tensor, own_n: Tensor | None, m: int
) -> tuple[Tensor, Tensor]:
    """Scores some queries against the whole gallery by faiss, on the GPU if they are there.

    Args:
        gallery: what is searched.
        query_nD: queries as `Gallery.queries` gives them.
        own_n: row of the gallery that is the query itself and is left out, or None.
        m: candidates per query.

    Returns:
        Scores without −½‖q‖² and gallery rows (n×m), best first.

    Raises:
        ValueError: faiss is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise ValueError(
            "backend 'faiss' needs the package faiss-cpu or faiss-gpu; 'torch' needs none"
        ) from error
    wanted = m if own_n is None else m + 1
    # [q, 1]·[g, −½‖g‖²]
    rows = gallery.rows_and_squares
    query_nE = torch.cat([query_nD, query_nD.new_ones(len(query_nD), 1)], dim=1)
    if query_nE.is_cuda:
        import faiss.contrib.torch_utils  # lets faiss read and return tensors of the GPU

        scores, indices = faiss.knn_gpu(
            faiss.StandardGpuResources(),
            query_nE,
            rows,
            wanted,
            metric=faiss.METRIC_INNER_PRODUCT,
        )
    else:
        found = faiss.knn(query_nE.numpy(), rows.numpy(), wanted, metric=faiss.METRIC_INNER_PRODUCT)
        scores, indices = (torch.from_numpy(part) for part in found)
    if own_n is not None:
        scores[indices == own_n[:, None]] = -torch.inf
        scores, order = scores.topk(m, dim=1)
        indices = indices.gather(1, order)
    return scores, indices
