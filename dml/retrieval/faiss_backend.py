"""Candidates from faiss's flat search, an optional alternative: `backend="faiss"`."""

from __future__ import annotations

import torch
from torch import Tensor

from dml.retrieval.plain_search import PlainSearch


class FaissSearch(PlainSearch):
    """Proposes candidates by faiss, on the device of the gallery; see `PlainSearch`.

    faiss uses its own threads.
    """

    squares_in_product = True

    def best(self, query_nD: Tensor, self_n: Tensor | None, m: int) -> tuple[Tensor, Tensor]:
        """See `PlainSearch.best`.

        Raises:
            ValueError: faiss is not installed.
        """
        try:
            import faiss
        except ImportError as error:
            raise ValueError(
                "backend 'faiss' needs the package faiss-cpu or faiss-gpu; 'torch' needs none"
            ) from error
        count = m if self_n is None else m + 1
        # [q, 1]·[g, −½‖g‖²]
        rows = self.gallery.rows_and_squares
        query_nE = torch.cat([query_nD, query_nD.new_ones(len(query_nD), 1)], dim=1)
        metric = faiss.METRIC_INNER_PRODUCT
        if query_nE.is_cuda:
            import faiss.contrib.torch_utils  # lets faiss accept and return GPU tensors

            resources = faiss.StandardGpuResources()
            scores, indices = faiss.knn_gpu(resources, query_nE, rows, count, metric=metric)
        else:
            arrays = faiss.knn(query_nE.numpy(), rows.numpy(), count, metric=metric)
            scores, indices = (torch.from_numpy(array) for array in arrays)
        if self_n is not None:
            scores[indices == self_n[:, None]] = -torch.inf
            scores, order = scores.topk(m, dim=1)
            indices = indices.gather(1, order)
        return scores, indices
