"""The search for images in a file of embeddings, by an index of faiss if the file is large."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.core.regular_files import check_regular
from dml.retrieval.embedding_file import ImageEmbeddings, open_embeddings
from dml.retrieval.exact_search import nearest_neighbors

SAMPLE = 100  # rows that measure the recall of an index
PROBED = 32  # lists of an index that are searched
DUPLICATE = 1e-3  # largest distance, of the query's length 1: float16 has three digits


def search_file(
    path: str | Path,
    queries: Sequence[str | Path | int],
    k: int,
    embed: Callable[[Sequence[str], ImageEmbeddings], np.ndarray],
    index: bool = False,
) -> tuple[list[str], pd.DataFrame]:
    """Returns the files of the queries, and the k nearest images of each; see `dml.search`.

    Args:
        path: the file.
        queries: images, or row numbers of the file, from 0.
        k: neighbors of each query.
        embed: returns the embeddings of images that are not in the file, as the file's.
        index: candidates come from an index of faiss, which is saved; False: all rows are compared.

    Raises:
        UserError: the file cannot be read, a row does not exist, k is too large, or faiss is not
            installed.
    """
    stored = open_embeddings(path)
    own = np.array([_find_row(str(query), stored) for query in queries])
    names = [stored.paths[r] if r >= 0 else str(q) for q, r in zip(queries, own, strict=True)]
    vectors = _numbers(stored.embeddings[own])
    if (new := own < 0).any():
        vectors[new] = _numbers(embed([*np.array(names)[new]], stored))
    most = (count := len(stored.embeddings)) - int((own >= 0).any())
    if not 1 <= k <= most:
        raise UserError(f"k: {k} is not between 1 and {most}, the images that a query can find")
    try:
        pool: Any = slice(None)
        if index:
            pool = _find_candidates(Path(path), stored.embeddings, vectors, k)
        points, numbers = _numbers(stored.embeddings[pool]), np.arange(count)[pool]
        found = nearest_neighbors(vectors, points, k=min(k + 1, len(points)))
    except ValueError as error:
        raise UserError(f"embeddings: {path}: {error}") from error
    # A stable sort leaves all in their order, except for the query itself.
    rows = numbers[found.indices]
    order = np.argsort(rows == own[:, None], axis=1, kind="stable")[:, :k]
    rows = np.take_along_axis(rows, order, 1).ravel()
    distances = np.take_along_axis(found.distances.numpy(), order, 1).ravel()
    labels = np.full(count, None) if stored.labels is None else stored.labels.astype(object)
    columns = {
        "query": np.repeat([str(query) for query in queries], k),
        "query_label": np.repeat(np.where(new, None, labels[own]), k),
        "rank": np.tile(np.arange(1, k + 1), len(own)),
        "distance": distances,
        "row": rows,
        "label": labels[rows],
        "path": stored.paths[rows],
        "duplicate": distances <= DUPLICATE * np.repeat(vectors.norm(dim=1).numpy(), k),
    }
    return names, pd.DataFrame(columns)


def _numbers(embeddings: np.ndarray) -> torch.Tensor:
    """Returns embeddings as at least float32, copied if they are in another form on the disk."""
    dtype = np.float64 if embeddings.itemsize > 4 else np.float32
    return torch.from_numpy(embeddings.astype(dtype, copy=not embeddings.flags.writeable))


def _find_row(query: str, stored: ImageEmbeddings) -> int:
    """Returns the row of a query; −1 for an image that is not in the file."""
    if query.isdecimal() and not Path(query).exists():
        if int(query) >= (count := len(stored.paths)):
            raise UserError(f"query: row {query} does not exist; the last one is {count - 1}")
        return int(query)
    alike = np.flatnonzero(np.char.endswith(stored.paths, Path(query).name))
    place = os.path.realpath(query)
    return next((int(row) for row in alike if os.path.realpath(stored.paths[row]) == place), -1)


def _find_candidates(path: Path, points: np.ndarray, queries: torch.Tensor, k: int) -> np.ndarray:
    """Returns rows among which an index finds the neighbors of queries, in ascending order.

    The index is saved, and built anew if the file is newer. Building prints the share of exact
    neighbors that it finds to stderr.

    Args:
        path: the file of the embeddings.
        points: its embeddings N×D.
        queries: Q×D.
        k: neighbors of each query.

    Raises:
        UserError: faiss is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise UserError("index: faiss is not installed: pip install faiss-cpu") from error
    saved, count, most = path.with_name(f"{path.name}.faiss"), len(points), min(k + 1, len(points))
    if saved.exists():
        check_regular(saved)
    if saved.exists() and saved.stat().st_mtime_ns > path.stat().st_mtime_ns:
        index: Any = faiss.read_index(str(saved))
    else:
        known = _numbers(points).float().numpy()
        lists = max(1, min(int(count**0.5), count // 39))  # faiss warns of fewer rows a list
        index = faiss.index_factory(known.shape[1], f"IVF{lists},Flat")
        index.nprobe = PROBED  # the file keeps it
        index.train(known)
        index.add(known)
        with replace_file(saved) as temporary:
            faiss.write_index(index, str(temporary))
        sample = known[:: max(1, count // SAMPLE)].copy()
        pair = torch.from_numpy(sample), torch.from_numpy(known)
        exact = nearest_neighbors(*pair, k=most).indices[:, 1:]
        shares = [*map(np.isin, exact, index.search(sample, most)[1])]
        print(f"the index finds {np.mean(shares):.1%} of exact neighbors", file=sys.stderr)
    rows = index.search(queries.float().numpy(), k + 1)[1]
    # The first rows as well: an index may find fewer than k.
    return np.union1d(rows[rows >= 0], np.arange(most))
