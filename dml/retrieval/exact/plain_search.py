"""The search engines for GPUs: one product and one `topk` per chunk of queries, or faiss.

Shapes: n queries of one chunk, N' gallery rows, E extended dimensions, m candidates per query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dml.retrieval.exact.scaled_gallery import ScaledGallery

ForEach = Callable[..., list[Any]]


class PlainSearch:
    """Proposes candidates for the exact nearest neighbors by float32 scores.

    Args:
        gallery: the gallery.
        memory_bytes: bound on the working memory.
        table_bytes: bound on the memory of `table`; None: `memory_bytes`.

    Attributes:
        workers: number of chunks that are processed in parallel.
        max_queries: largest number of queries of a chunk.
    """

    workers = 1
    max_queries = 1 << 14

    def __init__(
        self, gallery: ScaledGallery, memory_bytes: int, table_bytes: int | None = None
    ) -> None:
        self.gallery, self.memory_bytes = gallery, memory_bytes
        self.table_bytes = memory_bytes if table_bytes is None else table_bytes

    @contextmanager
    def threads(self) -> Iterator[ForEach]:
        """A context with a function like `map`, which returns a list."""
        yield lambda function, items: [function(item) for item in items]

    def multiply(self, a_nE: Tensor, b_cE: Tensor, out_nc: Tensor) -> None:
        """Writes a·bᵀ of float32 rows."""
        torch.mm(a_nE, b_cE.T, out=out_nc)

    def bytes_per_query(self, m: int) -> int:
        """Returns the memory per query: its scores, a copy of them and the candidates."""
        return 8 * len(self.gallery.rows) + 40 * m

    def table(self, m: int, for_each: ForEach) -> tuple[Tensor, Tensor] | None:
        """Returns `best` of all gallery rows as queries, if this is faster than single chunks."""
        return None

    def best(self, query_nE: Tensor, m: int) -> tuple[Tensor, Tensor]:
        """Returns the scores and gallery rows of the m best items (both n×m), best first.

        A last score of ∞ marks a query whose candidates are incomplete.
        """
        scores_nm, rows_nm = (query_nE @ self.gallery.rows.T).topk(m, dim=1)
        return scores_nm, rows_nm


class FaissSearch(PlainSearch):
    """Proposes candidates by faiss's flat search, an optional alternative: `backend="faiss"`.

    faiss computes on the device of the gallery, and uses its own threads.
    """

    max_queries = 4096  # faiss's own block: for fewer queries, its products are slower

    def bytes_per_query(self, m: int) -> int:
        """See `PlainSearch.bytes_per_query`: faiss keeps no scores."""
        return 40 * m

    def best(self, query_nE: Tensor, m: int) -> tuple[Tensor, Tensor]:
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
        rows, metric = self.gallery.rows, faiss.METRIC_INNER_PRODUCT
        if query_nE.is_cuda:
            import faiss.contrib.torch_utils  # lets faiss accept and return GPU tensors

            scores, indices = faiss.knn_gpu(
                faiss.StandardGpuResources(), query_nE, rows, m, metric=metric
            )
            return scores, indices
        arrays = faiss.knn(query_nE.numpy(), rows.numpy(), m, metric=metric)
        return torch.from_numpy(arrays[0]), torch.from_numpy(arrays[1])
