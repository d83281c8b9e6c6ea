"""Search of images in a file of embeddings: `dml.search`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from dml.core.atomic_io import read_json, replace_file, write_json
from dml.core.errors import UserError
from dml.data.embedding_file import ImageEmbeddings, open_embeddings
from dml.retrieval import nearest_neighbors
from dml.retrieval.exact_order import squared_distances
from dml.runs.figures.run_figures import draw_found
from dml.runs.image_embeddings import embed

BLOCK = 16_384  # rows that are read and searched at once
SAMPLE = 100  # rows that measure the recall of an index
DUPLICATE = 1e-3  # largest distance, of the query's length 1: float16 has three digits
INDICES = {"flat": "Flat", "hnsw": "HNSW32,Flat", "ivf": "IVF{lists},Flat"}  # names of faiss


def search(
    embeddings: str | Path,
    queries: Sequence[str | Path | int],
    k: int = 10,
    *,
    network: str | Path | None = None,
    picture: str | Path | None = None,
    device: str = "auto",
    index: Literal["flat", "hnsw", "ivf"] | None = None,
) -> pd.DataFrame:
    """Returns the k nearest images of each query, by Euclidean distance in float64.

    Ties go to the lower row. A query that is in the file is left out of its own neighbors.

    Args:
        embeddings: a file of `dml.embed`, of `evaluate.py save=`, or of other software.
        queries: images, or row numbers of the file, from 0.
        k: neighbors of each query.
        network: embeds queries that are not in the file; None: the network that made the file.
        picture: a PNG of the queries and their neighbors, framed green if the class is the query's,
            else red, and grey if classes are not known.
        device: of the network.
        index: candidates come from an index of faiss, which the first call builds and saves beside
            the file; None: all rows are compared.

    Returns:
        A row for each neighbor, with query, query_label, rank, distance, row, label, path and
        duplicate, which is True for an image with the query's own embedding. `attrs["recall"]`
        is the share of exact neighbors that an index found when it was built.

    Raises:
        UserError: the file or an image cannot be read, a row does not exist, k is too large, the
            network is missing or not the one that made the file, or faiss is not installed.
    """
    stored = open_embeddings(embeddings)
    own = np.array([_find_row(str(query), stored) for query in queries])
    new = [Path(str(query)) for query, row in zip(queries, own, strict=True) if row < 0]
    wide = stored.embeddings.itemsize > 4
    vectors = np.empty((len(own), stored.embeddings.shape[1]), np.float64 if wide else np.float32)
    vectors[own >= 0] = stored.embeddings[own[own >= 0]]
    if new:
        vectors[own < 0] = _embed_queries(new, stored, network, device)
    if not 1 <= k <= (most := len(stored.embeddings) - int((own >= 0).any())):
        raise UserError(f"k: {k} is not between 1 and {most}, the images that a query can find")
    points, place, pool, recall = stored.embeddings, own, None, 1.0
    if index:
        engine, recall = _open_index(Path(embeddings), points, index, k)
        candidates = engine.search(vectors.astype(np.float32), k + 1)[1]
        # The first rows as well: an index may find fewer than k.
        pool = np.union1d(candidates[candidates >= 0], np.arange(len(points))[: k + 1])
        place = np.where(np.isin(own, pool), np.searchsorted(pool, own), -1)
        points = points[pool]
    try:
        rows, distances = _nearest(points, vectors, place, k)
    except ValueError as error:
        raise UserError(f"embeddings: {embeddings}: {error}") from error
    rows = rows if pool is None else pool[rows]
    labels = np.full(len(stored.paths), None) if stored.labels is None else stored.labels
    own_labels = [labels[row] if row >= 0 else None for row in own]
    columns = {
        "query": np.repeat([str(query) for query in queries], k),
        "query_label": pd.Series(np.repeat(np.array(own_labels, object), k), dtype=object),
        "rank": np.tile(np.arange(1, k + 1), len(own)),
        "distance": distances.ravel(),
        "row": rows.ravel(),
        "label": pd.Series(labels[rows.ravel()], dtype=object),
        "path": stored.paths[rows.ravel()],
        "duplicate": (distances <= DUPLICATE * np.linalg.norm(vectors, axis=1)[:, None]).ravel(),
    }
    found = pd.DataFrame(columns)
    found.attrs["recall"] = recall
    if picture is not None:
        shown = [str(q) if r < 0 else stored.paths[r] for q, r in zip(queries, own, strict=True)]
        draw_found(shown, found, Path(picture))
    return found


def _find_row(query: str, stored: ImageEmbeddings) -> int:
    """Returns the row of a query; −1 for an image that is not in the file."""
    if query.isdecimal() and not Path(query).exists():
        if int(query) >= (count := len(stored.paths)):
            raise UserError(f"query: row {query} does not exist; the last one is {count - 1}")
        return int(query)
    alike = np.flatnonzero(np.char.endswith(stored.paths, Path(query).name))
    place = os.path.realpath(query)
    return next((int(row) for row in alike if os.path.realpath(stored.paths[row]) == place), -1)


def _embed_queries(
    queries: Sequence[Path], stored: ImageEmbeddings, network: str | Path | None, device: str
) -> np.ndarray:
    made_by = stored.made_by
    source = made_by.get("network") if network is None else network
    if source is None:
        raise UserError("network: the file does not say which network made it; give --network")
    model = {key: made_by[key] for key in ("repeat", "fold", "options") if key in made_by}
    model = {} if network else model  # another input size would be another network
    made = embed(source, queries, features=made_by.get("features", False), device=device, **model)
    weights, width = made.made_by["weights"], stored.embeddings.shape[1]
    if made_by.get("weights", weights) != weights:
        raise UserError(f"network: the weights of {source} are not those that made the file")
    if made.embeddings.shape[1] != width:
        size = made.embeddings.shape[1]
        raise UserError(f"network: {source} has {size} dimensions, the file {width}")
    return made.embeddings


def _open_index(path: Path, points: np.ndarray, kind: str, k: int) -> tuple[Any, float]:
    """Returns the saved index of a file, built if there is none of this version, and its recall."""
    try:
        import faiss
    except ImportError as error:
        raise UserError("index: faiss is not installed: pip install faiss-cpu") from error
    place, record = (path.with_name(f"{path.name}.{kind}.{end}") for end in ("faiss", "json"))
    state, known = [path.stat().st_size, path.stat().st_mtime_ns], read_json(record) or {}
    if known.get("made_of") == state and place.exists():
        return faiss.read_index(str(place)), known["recall"]
    count, generator = len(points), np.random.default_rng(0)
    lists = max(1, min(int(count**0.5), count // 39))  # faiss warns of fewer rows a list
    engine: Any = faiss.index_factory(points.shape[1], INDICES[kind].format(lists=lists))
    if kind == "hnsw":
        engine.hnsw.efSearch = 64
    elif kind == "ivf":
        engine.nprobe = 32
        sample = np.sort(generator.choice(count, min(count, 64 * lists), replace=False))
        engine.train(np.asarray(points[sample], np.float32))
    for start in range(0, count, BLOCK):
        engine.add(np.asarray(points[start : start + BLOCK], np.float32))
    sample = generator.choice(count, min(count, SAMPLE), replace=False)
    exact, _ = _nearest(points, points[sample].astype(np.float64), sample, k)
    found = engine.search(points[sample].astype(np.float32), k + 1)[1]
    recall = float((exact[:, :, None] == found[:, None]).any(2).mean())
    with replace_file(place) as temporary:
        faiss.write_index(engine, str(temporary))
    write_json(record, {"made_of": state, "recall": recall, "k": k})
    return engine, recall


def _nearest(
    points: np.ndarray, vectors: np.ndarray, own: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows and distances of the neighbors (B×k), block by block.

    A block's neighbors are exact, and so are the k nearest among those of all blocks.
    """
    queries = torch.from_numpy(vectors)
    best_rows = np.empty((len(own), 0), np.int64)
    best = np.empty((len(own), 0))
    count = len(points)
    # Of one size, so that equal vectors in two blocks have bitwise equal distances.
    cuts = np.linspace(0, count, math.ceil(count / max(BLOCK, 4 * k)) + 1).astype(int)
    for start, stop in pairwise(cuts):
        block = torch.from_numpy(points[start:stop].astype(vectors.dtype))
        found = nearest_neighbors(queries, block, k=min(k + 1, len(block))).indices
        pairs = torch.arange(len(own)).repeat_interleave(found.shape[1]), found.ravel()
        squared = squared_distances(queries, block, *pairs).view_as(found).numpy()
        rows = np.concatenate([best_rows, found.numpy() + start], axis=1)
        squared = np.concatenate([best, squared], axis=1)
        squared[rows == own[:, None]] = np.inf
        order = np.lexsort((rows, squared), axis=1)[:, :k]
        best_rows, best = (np.take_along_axis(part, order, axis=1) for part in (rows, squared))
    return best_rows, np.sqrt(best)
