"""Exact nearest neighbors: Euclidean order, ties to the lower gallery index.

Shapes: B queries, N gallery items, D dimensions, k neighbors, n queries of one chunk.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dml.retrieval.exact_search import ExactSearch


class Neighbors(NamedTuple):
    """Distances (B×k, ascending, in the embeddings' precision) and gallery indices (B×k)."""

    distances: Tensor
    indices: Tensor


def nearest_neighbors(
    query: Tensor,
    gallery: Tensor | None = None,
    *,
    k: int,
    backend: str = "auto",
    memory_mb: float | None = None,
) -> Neighbors:
    """Returns the exact k nearest gallery items of every query.

    Items are ordered by Euclidean distance, computed in float64 (half precision is converted to
    float32 first), and equal distances by gallery index, so that the result is the same on every
    machine.

    Args:
        query: B×D embeddings on any device.
        gallery: N×D embeddings; None: the queries are the gallery, and a query is not its own
            neighbor.
        k: neighbors per query, 1 to N (N − 1 without a gallery).
        backend: "torch", "faiss" (must be installed) or "auto", which means torch.
            `python scripts/benchmark.py retrieval --backends torch,faiss` compares them.
        memory_mb: bound on the size of the working buffers, in addition to a float32 copy of the
            gallery; None: 64 on a CPU, on a GPU a quarter of its free memory, at most 4,096.

    Raises:
        ValueError: shapes are incompatible, the gallery is empty, k is out of range, or embeddings
            contain NaN or infinite values (the message has their count).
    """
    search = ExactSearch(query, gallery, most=k, backend=backend, memory_mb=memory_mb)
    indices = torch.empty(len(query), k, dtype=torch.long, device=query.device)
    distances = torch.empty(len(query), k, dtype=search.query.dtype, device=query.device)

    def store(rows: Tensor, indices_nk: Tensor) -> None:
        indices[rows] = indices_nk
        distances[rows] = search.distances(rows, indices_nk).to(distances.dtype)

    everything = torch.arange(len(query), device=query.device)
    search.map_chunks(everything, torch.full((len(query),), k), store)
    return Neighbors(distances, indices)
