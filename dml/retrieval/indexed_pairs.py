"""Pairs of near-duplicates that an index of faiss finds, and which share of all pairs they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from dml.retrieval.exact.near_pairs import MOST_PAIRS, NearPairs
from dml.retrieval.exact.order import squared_distances
from dml.retrieval.file_index import AUTOMATIC, open_index

PAIR_ROWS = 50  # nearest rows of each row that are its pairs in an approximate search
PAIR_SAMPLE = 200  # rows that estimate the share of pairs
QUERIES = 4096  # searched in an index at once
NEAR_ROUNDING = 1e-4  # of distances in float32; those within it are computed again


def approximate_pairs(
    path: Path, points: np.ndarray, limit: float, kind: str = AUTOMATIC
) -> tuple[NearPairs, float | None]:
    """Returns pairs of rows within a distance that an index finds, and their estimated share.

    The index is that of `search_file`, which is saved. Each row is compared with its `PAIR_ROWS`
    nearest rows in it, and distances are computed in float64.

    Args:
        path: the file of the embeddings.
        points: its embeddings N×D.
        limit: largest Euclidean distance.
        kind: of the index, see `find_candidates`.

    Returns:
        The pairs, and the share of the pairs of sampled rows that is among them; None if these rows
        have no pair.

    Raises:
        UserError: faiss is not installed, or an embedding is too large for it.
        ValueError: an embedding is not finite.
    """
    index = open_index(path, points, PAIR_ROWS, kind).index
    numbers = _numbers(points)
    k = min(PAIR_ROWS + 1, len(points))
    parts = []
    for start in range(0, len(points), QUERIES):
        queries = numbers[start : start + QUERIES].float().numpy()
        nearest = index.search(queries, k)[1]
        rows = np.repeat(np.arange(start, start + len(nearest)), k)
        others = nearest.ravel()
        is_pair = (others >= 0) & (others != rows)
        parts.append(_near(numbers, rows[is_pair], others[is_pair], limit))
    first, second = map(np.concatenate, zip(*parts, strict=True))
    codes = np.unique(first * len(points) + second)
    first, second = np.divmod(codes, len(points))
    apart = _distances(numbers, first, second)
    order = np.lexsort((second, first, apart))[:MOST_PAIRS]
    pairs = NearPairs(first[order], second[order], apart[order], len(codes))
    return pairs, _estimate_recall(numbers, codes, limit)


def _distances(numbers: torch.Tensor, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    pairs = torch.from_numpy(rows), torch.from_numpy(others)
    return squared_distances(numbers, numbers, *pairs).sqrt_().numpy()


def _near(
    numbers: torch.Tensor, rows: np.ndarray, others: np.ndarray, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs within a distance, the lower row first."""
    is_near = _distances(numbers, rows, others) <= limit
    pair = rows[is_near], others[is_near]
    return np.minimum(*pair), np.maximum(*pair)


def _estimate_recall(numbers: torch.Tensor, codes: np.ndarray, limit: float) -> float | None:
    """Returns the share of the pairs of sampled rows that have a code; None if there are none."""
    total = len(numbers)
    sampled = np.arange(0, total, max(1, total // PAIR_SAMPLE))
    sample = numbers[torch.from_numpy(sampled)]
    exact, seen = 0, 0
    for start in range(0, total, QUERIES):
        block = numbers[start : start + QUERIES]
        apart = torch.cdist(sample, block, compute_mode="donot_use_mm_for_euclid_dist")
        likely = (apart <= limit * (1 + NEAR_ROUNDING)).numpy()
        query, other = np.nonzero(likely)
        rows, others = sampled[query], other + start
        is_pair = rows != others
        first, second = _near(numbers, rows[is_pair], others[is_pair], limit)
        exact += len(first)
        seen += int(np.isin(first * total + second, codes).sum())
    return seen / exact if exact else None


def _numbers(embeddings: np.ndarray) -> torch.Tensor:
    """Returns embeddings as at least float32, copied if they are in another form on the disk."""
    dtype = np.float64 if embeddings.itemsize > 4 else np.float32
    return torch.from_numpy(embeddings.astype(dtype, copy=not embeddings.flags.writeable))
