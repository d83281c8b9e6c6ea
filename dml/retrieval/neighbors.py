"""Exact nearest neighbors: Euclidean order, ties to the lower gallery index.

Shapes: B queries, N gallery items, D dimensions, k neighbors, n queries of one chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dml.retrieval.exact import full_search, score_error, sort_near_ties, squared_distances

SPARE = 8  # candidates beyond the k-th, so that almost no query needs a second search
ROWS = 1024
FLOAT32_UNIT = 2.0**-24


class Neighbors(NamedTuple):
    """Distances (B×k, ascending, in the embeddings' precision) and gallery indices (B×k)."""

    distances: Tensor
    indices: Tensor


def nearest_neighbors(
    query: Tensor,
    gallery: Tensor | None = None,
    *,
    k: int,
    memory_mb: float = 64.0,
) -> Neighbors:
    """Finds the k nearest gallery items of every query, exactly.

    The order is that of the Euclidean distances computed in float64 from the embeddings as given
    (half precision is raised to float32 first); equal distances are ordered by gallery index, so
    that the answer is repeatable on any machine.

    Args:
        query: B×D embeddings on any device.
        gallery: N×D embeddings; None searches the queries among themselves, each without itself.
        k: neighbors per query, 1 to N (N − 1 without a gallery).
        memory_mb: bound on the size of the working buffers, beside a float32 copy of the gallery.

    Raises:
        ValueError: shapes do not fit, the gallery is empty, k is out of range, or embeddings hold
            NaN or infinite values (with their count).
    """
    search = NeighborSearch(query, gallery, memory_mb=memory_mb)
    if not 1 <= k <= search.available:
        raise ValueError(
            f"k must lie between 1 and the {search.available} gallery items a query can find,"
            f" got {k}"
        )
    indices = torch.empty(len(query), k, dtype=torch.long, device=query.device)
    distances = torch.empty(len(query), k, dtype=search.query.dtype, device=query.device)
    for rows in search.chunks(torch.arange(len(query), device=query.device)):
        indices[rows] = found = search.nearest(rows, k)
        distances[rows] = search.distances(rows, found).to(distances.dtype)
    return Neighbors(distances, indices)


def check_embeddings(embeddings: Tensor, name: str) -> Tensor:
    """Returns the embeddings in float32 or float64.

    Raises:
        ValueError: not a non-empty floating-point matrix, or not finite; names the argument.
    """
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f"{name} must be a floating-point matrix (items by dimensions), got"
            f" {embeddings.dtype} of shape {tuple(embeddings.shape)}"
        )
    if not embeddings.numel():
        raise ValueError(f"{name} is empty: shape {tuple(embeddings.shape)}")
    embeddings = embeddings.detach()
    if embeddings.dtype not in (torch.float32, torch.float64):
        embeddings = embeddings.float()
    # a sum over all values is finite only if they are, and needs no mask as large as the matrix
    if not math.isfinite(embeddings.sum(dtype=torch.float64).item()):
        bad = sum(int((~part.isfinite()).sum()) for part in embeddings.split(4096))
        if bad:
            raise ValueError(f"{name}: {bad} of {embeddings.numel()} values are NaN or infinite")
    return embeddings


class NeighborSearch:
    """A gallery made ready for search, and its queries.

    Scores are s = (q − c)·(g − c) − ½‖g − c‖² with the gallery's mean c, scaled to unit size: the
    order of s is the order of the distances for any c, and rounding errors are smallest near the
    data's middle, so that even a nearly collapsed embedding is ranked by float32 products.
    """

    def __init__(
        self, query: Tensor, gallery: Tensor | None = None, *, memory_mb: float = 64.0
    ) -> None:
        self.query = check_embeddings(query, "query")
        self.own = gallery is None
        self.gallery = self.query if gallery is None else check_embeddings(gallery, "gallery")
        if self.query.shape[1] != self.gallery.shape[1]:
            raise ValueError(
                f"query and gallery must have one dimension, got {self.query.shape[1]} and"
                f" {self.gallery.shape[1]}"
            )
        if self.query.device != self.gallery.device:
            raise ValueError(
                f"query and gallery must be on one device, got {self.query.device} and"
                f" {self.gallery.device}"
            )
        self.memory_bytes = int(memory_mb * 2**20)
        self.available = len(self.gallery) - self.own
        self._prepare()

    def _prepare(self) -> None:
        N, D = self.gallery.shape
        total = torch.zeros(D, dtype=torch.float64, device=self.gallery.device)
        largest = torch.zeros((), dtype=torch.float64, device=self.gallery.device)
        for part in self.gallery.split(4096):
            total += part.double().sum(dim=0)
        self.center = total / N
        for part in self.gallery.split(4096):
            largest = torch.maximum(largest, (part.double() - self.center).norm(dim=1).max())
        exponent = math.frexp(float(largest))[1]
        self.scale = math.ldexp(1.0, -exponent)
        self.largest = float(largest) * self.scale
        # one more column carries −½‖g‖², so that a single product gives the scores
        self.prepared = torch.empty(N, D + 1, dtype=torch.float32, device=self.gallery.device)
        for part, out in zip(self.gallery.split(4096), self.prepared.split(4096), strict=True):
            centered = (part.double() - self.center) * self.scale
            out[:, :D] = centered
            out[:, D] = -0.5 * centered.square().sum(dim=1)

    def chunks(self, rows: Tensor) -> Iterator[Tensor]:
        """Splits query numbers into pieces whose scores fit the memory budget."""
        return iter(rows.split(ROWS))

    def nearest(self, rows: Tensor, k: int) -> Tensor:
        """Returns the gallery indices (n×k) of the nearest items of the queries `rows` (n)."""
        query_nD = self.query[rows]
        own_n = rows if self.own else None
        centered_nD = (query_nD.double() - self.center) * self.scale
        norm_n = centered_nD.norm(dim=1)
        error_n = score_error(norm_n, self.largest, query_nD.shape[1], FLOAT32_UNIT)
        m = min(k + SPARE, self.available)
        ones = torch.ones(len(rows), 1, device=rows.device)
        scores_nm, indices_nm = self._candidates(
            torch.cat([centered_nD.float(), ones], dim=1), own_n, m
        )
        sort_near_ties(query_nD, self.gallery, scores_nm, indices_nm, error_n, k)
        found = indices_nm[:, :k]
        if m < self.available:
            # an item outside the candidates has at most the last score plus the error
            unsure = scores_nm[:, k - 1] - scores_nm[:, -1] <= 2 * error_n
            if unsure.any():
                found[unsure] = full_search(
                    query_nD[unsure],
                    self.gallery,
                    self.center,
                    None if own_n is None else own_n[unsure],
                    k,
                    self.memory_bytes,
                )
        return found

    def _candidates(self, query_nE: Tensor, own_n: Tensor | None, m: int) -> tuple[Tensor, Tensor]:
        n, N = len(query_nE), len(self.gallery)
        columns = max(m + 1, self.memory_bytes // (8 * n))
        best_scores = query_nE.new_empty(n, 0)
        best_indices = torch.empty(n, 0, dtype=torch.long, device=query_nE.device)
        for start in range(0, N, columns):
            tile = query_nE @ self.prepared[start : start + columns].T
            if own_n is not None:
                mine = ((own_n >= start) & (own_n < start + tile.shape[1])).nonzero().squeeze(1)
                tile[mine, own_n[mine] - start] = -torch.inf
            scores, indices = tile.topk(min(m, tile.shape[1]), dim=1)
            scores = torch.cat([best_scores, scores], dim=1)
            indices = torch.cat([best_indices, indices + start], dim=1)
            best_scores, order = scores.topk(min(m, scores.shape[1]), dim=1)
            best_indices = indices.gather(1, order)
        return best_scores, best_indices

    def distances(self, rows: Tensor, indices_nk: Tensor) -> Tensor:
        """Returns the Euclidean distances (n×k, float64) of the queries `rows` to gallery items."""
        n, k = indices_nk.shape
        query_P = rows.repeat_interleave(k)
        squared = squared_distances(self.query, self.gallery, query_P, indices_nk.reshape(-1))
        return squared.sqrt_().view(n, k)
