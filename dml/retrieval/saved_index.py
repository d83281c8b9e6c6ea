"""An approximate index of stored embeddings, made by faiss and saved beside their file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.retrieval.exact_search import nearest_neighbors

SAMPLE = 100  # rows that measure the recall of an index
PROBED = 32  # lists of an index that are searched


def find_candidates(path: Path, points: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
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
    if saved.exists() and saved.stat().st_mtime_ns > path.stat().st_mtime_ns:
        index: Any = faiss.read_index(str(saved))
    else:
        known = np.ascontiguousarray(points, np.float32)
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
    rows = index.search(np.ascontiguousarray(queries, np.float32), k + 1)[1]
    # The first rows as well: an index may find fewer than k.
    return np.union1d(rows[rows >= 0], np.arange(most))
