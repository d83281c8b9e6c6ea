"""Nearest neighbors among codes, which are decoded block by block.

Codes of `int8` are compared exactly. Codes of signs are ranked by their Hamming distance to the
signs of the query, and the first of them again by the query itself: by its Euclidean distance,
scaled to the length √C, to vectors of ±1. Only codes are needed for that, and no other vectors
(Yamada, Asai and Hajishirzi, Efficient Passage Retrieval with Hashing, 2021).

Shapes: Q queries, N codes of P numbers, C dimensions, k neighbors, m candidates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dml.core.compression_forms import BINARY
from dml.retrieval.compression import Compression, Floats
from dml.retrieval.exact.streamed_search import VectorRows, find_nearest

Rows = NDArray[np.int64]
RESCORED = 100  # first candidates by Hamming distance, which are ranked again
BLOCK = 1 << 14  # codes that are decoded at once; a power of 2
QUERIES = 256  # compared with a block at once
COMPARED = 1 << 22  # numbers of candidates that are decoded at once


def nearest_codes(
    compression: Compression, queries: Floats, codes: NDArray[Any], k: int
) -> tuple[Rows, NDArray[np.float64]]:
    """Returns the rows of the k nearest codes of each query, and their distances, Q×k each.

    Distances are Euclidean, between queries and decoded codes, in float64; equal ones are in the
    order of the rows. Of signs, candidates are the max(k, 100) codes of the least Hamming distance.

    Args:
        compression: of the codes.
        queries: Q×C, as `Compression.make_queries` returns them.
        codes: N×P, in memory or on the disk.
        k: 1 to N.

    Raises:
        ValueError: k is out of range, or numbers are not finite.
    """
    if not 1 <= k <= len(codes):
        raise ValueError(f"k must lie between 1 and {len(codes)}, got {k}")
    if compression.form.type != BINARY:
        vectors = VectorRows(lambda rows: compression.decode(codes[rows]), len(codes))
        return find_nearest(vectors, queries.astype(np.float64), k)
    candidates = nearest_signs(compression, queries, codes, min(max(k, RESCORED), len(codes)))
    rows, distances = rescore(compression, queries, codes, candidates)
    return rows[:, :k], distances[:, :k]


def nearest_signs(compression: Compression, queries: Floats, codes: NDArray[Any], m: int) -> Rows:
    """Returns the rows Q×m of the codes of the least Hamming distance, the nearest first.

    Equal distances are in the order of the rows.

    Args:
        compression: of the codes, of signs.
        queries: Q×C, of which the signs count.
        codes: N×P.
        m: 1 to N.
    """
    signs = np.where(queries > 0, 1, -1).astype(np.float32)
    best = np.empty((len(queries), 0), np.int64)
    for start in range(0, len(codes), BLOCK):
        block = compression.decode(codes[start : start + BLOCK])
        nearest = []
        for first in range(0, len(signs), QUERIES):
            nearest.append(_nearest_of_block(signs[first : first + QUERIES], block, m))
        differing, columns = np.divmod(np.concatenate(nearest), BLOCK)
        keys = differing * len(codes) + columns + start
        best = np.sort(np.concatenate([best, keys], axis=1), axis=1)[:, :m]
    return best % len(codes)


def _nearest_of_block(signs: Floats, block: Floats, m: int) -> Rows:
    """Returns the m smallest of 2 · differing signs × BLOCK + column for each query."""
    width = block.shape[1]
    # A shorter type takes half the time.
    dtype = np.dtype(np.int32 if (2 * width + 1) * BLOCK < 2**31 else np.int64)
    columns = np.arange(width * BLOCK, width * BLOCK + len(block)).astype(dtype)
    # Sums of ±1 are whole numbers, which float32 holds exactly, also times a power of 2.
    products = signs @ block.T
    products *= -BLOCK
    keys: Rows = products.astype(dtype) + columns
    if m < len(block):
        keys = np.partition(keys, m - 1, axis=1)[:, :m]
    return keys.astype(np.int64)  # a copy: a part would hold the memory of the whole


def rescore(
    compression: Compression, queries: Floats, codes: NDArray[Any], candidates: Rows
) -> tuple[Rows, NDArray[np.float64]]:
    """Returns candidates in the order of their distances to the queries, and the distances.

    Equal distances are in the order of the rows.

    Args:
        compression: of the codes.
        queries: Q×C.
        codes: N×P.
        candidates: Q×m rows of the codes.
    """
    distances = np.empty(candidates.shape)
    step = max(1, COMPARED // (candidates.shape[1] * compression.width))
    for start in range(0, len(queries), step):
        part = candidates[start : start + step]
        vectors = compression.decode(codes[part.ravel()]).reshape(*part.shape, -1)
        differences = vectors - queries[start : start + step, None].astype(np.float64)
        distances[start : start + step] = np.sqrt(np.square(differences).sum(axis=2))
    order = np.lexsort((candidates, distances), axis=1)
    rows = np.take_along_axis(candidates, order, 1)
    return rows, np.take_along_axis(distances, order, 1)
