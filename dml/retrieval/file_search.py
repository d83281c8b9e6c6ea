"""The search for images in a file of embeddings, by an index of faiss if the file is large.

It needs neither torch nor pandas, whose imports take longer than most searches.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.core.counts import count_of
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.retrieval.compressed_search import nearest_codes
from dml.retrieval.embedding_file import (
    EmbeddedFiles,
    ImageEmbeddings,
    SearchedFile,
    note_gallery,
    open_for_search,
    read_embedded_files,
)
from dml.retrieval.exact.streamed_search import VectorRows, find_nearest
from dml.retrieval.vector_lengths import describe_lengths

UNKNOWN = -1  # a time in a file of embeddings
SAMPLE = 1000  # rows of a file of which the lengths are compared
DUPLICATE = 1e-3  # largest distance, of the query's length 1: float16 has three digits

Columns = dict[str, np.ndarray]  # of a table, by name


class Queries(NamedTuple):
    """Queries of a file of embeddings.

    Attributes:
        file: its content.
        files: Q paths.
        rows: Q rows of the file; −1: not in the file.
        vectors: Q×D embeddings, at least float32.
    """

    file: SearchedFile
    files: list[str]
    rows: np.ndarray
    vectors: np.ndarray

    @property
    def labels(self) -> np.ndarray:
        """Q classes; None where the class is not known."""
        labels = np.full(len(self.rows), None)
        is_known = self.rows >= 0
        if self.file.labels is not None:
            labels[is_known] = self.file.labels[self.rows[is_known]]
        return labels


def read_queries(
    path: str | Path,
    queries: Sequence[str | Path | int],
    embed: Callable[[Sequence[str], ImageEmbeddings], np.ndarray],
) -> Queries:
    """Returns the queries with their embeddings; see `search_file`, whose arguments these are.

    Raises:
        UserError: the file cannot be read, there is no query, a row does not exist, or embeddings
            differ in size.
    """
    if not len(queries):
        raise UserError("query: there is none; give an image, or the number of a row")
    file = open_for_search(path)
    note_gallery(path)
    stored = file.stored
    states = cache(partial(read_embedded_files, path))  # few files are searched for their images
    query_rows = np.array([_find_row(str(query), file, states) for query in queries])
    is_new = query_rows < 0
    names = np.array(list(map(str, queries)), object)
    names[~is_new] = file.paths[query_rows[~is_new]]
    vectors = _numbers(stored.decode(query_rows))
    if is_new.any():
        embedded = embed(names[is_new].tolist(), stored)
        width = vectors.shape[1]
        if stored.compression is not None:
            width = stored.compression.dimensions
        if embedded.shape[1] != width:
            raise UserError(
                f"query: embeddings of the network have {embedded.shape[1]} numbers, those of "
                f"{path} {width}"
            )
        if stored.compression is not None:
            embedded = stored.compression.make_queries(embedded)
        vectors[is_new] = _numbers(embedded)
    return Queries(file, names.tolist(), query_rows, vectors)


def search_file(
    path: str | Path,
    queries: Sequence[str | Path | int],
    k: int,
    embed: Callable[[Sequence[str], ImageEmbeddings], np.ndarray],
    index: bool | str = False,
) -> tuple[list[str], Columns]:
    """Returns the files of the queries, and the k nearest images of each; see `dml.search`.

    Args:
        path: the file.
        queries: images, or row numbers of the file, from 0.
        k: neighbors of each query; of a smaller file all, with a note.
        embed: returns the embeddings of images that are not in the file, as the file's.
        index: candidates come from an index of faiss, which is saved: True, or a factory string of
            faiss; False: all rows are compared.

    Raises:
        UserError: the file cannot be read, a row does not exist, there is no neighbor, or faiss is
            not installed.
    """
    read = read_queries(path, queries, embed)
    k = limit_neighbors(read, k)
    rows, distances = find_neighbors(Path(path), read, k, index)
    labels = np.full(len(rows), None)
    if read.file.labels is not None:
        labels = read.file.labels[rows]
    columns = {
        "query": np.repeat(np.array(list(map(str, queries)), object), k),
        "query_label": np.repeat(read.labels, k),
        "rank": np.tile(np.arange(1, k + 1), len(queries)),
        "distance": distances,
        "row": rows,
        "label": labels,
        "path": read.file.paths[rows],
        "duplicate": _are_duplicates(read, rows, distances, k),
    }
    return read.files, columns


def limit_neighbors(read: Queries, k: int) -> int:
    """Returns k, or the images that a query can find where these are fewer, with a note.

    A query that is a row of the file is no neighbor of itself.

    Raises:
        UserError: k is below 1, or there is no image to be found.
    """
    count = len(read.file.paths)
    available = count if (read.rows < 0).all() else count - 1
    if k < 1:
        raise UserError(f"k: {k} is below 1; a query needs a neighbor")
    if available < 1:
        raise UserError("query: the file has no other image to be found")
    if k <= available:
        return k
    print_plain(
        f"note: a query can find {count_of(available, 'image')} in the file, which are fewer than "
        f"{k} (-k): all are its neighbors",
        file=sys.stderr,
    )
    return available


def _are_duplicates(read: Queries, rows: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    """Returns whether the neighbors Q·k of queries have their embedding.

    Of a compressed file they have the query's code, up to rounding: the distance of a query to its
    own code is not 0.
    """
    vectors, stored = read.vectors.astype(np.float64), read.file.stored
    compression = stored.compression
    limits = DUPLICATE * np.linalg.norm(vectors, axis=1)
    if compression is not None and stored.has_codes:
        codes = compression.round_queries(read.vectors)
        rounded = compression.decode(codes).astype(np.float64)
        differences = stored.decode(rows) - np.repeat(rounded, k, axis=0)
        distances = np.linalg.norm(differences, axis=1)
        limits = limits + compression.largest_error
    return distances <= np.repeat(limits, k)


def find_neighbors(
    path: Path, read: Queries, k: int, index: bool | str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the k nearest neighbors of each query, and their distances, Q·k each.

    A query that is a row of the file is no neighbor of itself.

    Args:
        path: of the file.
        read: the queries.
        k: neighbors of each, see `limit_neighbors`.
        index: see `search_file`.

    Raises:
        UserError: embeddings cannot be compared, or codes have no index.
    """
    stored, query_rows = read.file.stored, read.rows
    if index:
        stored.check_indexed(path)
    count = len(stored.embeddings)
    try:
        if stored.compression is not None and stored.has_codes:
            queries, codes = read.vectors, stored.embeddings
            near = nearest_codes(stored.compression, queries, codes, min(k + 1, count))
        else:
            near = _find_nearest(path, stored.embeddings, read.vectors, k, index)
    except ValueError as error:
        raise UserError(f"embeddings: {path}: {error}") from error
    _note_lengths(read)
    rows, distances = near
    # A stable sort leaves all in their order, except for the query itself.
    order = np.argsort(rows == query_rows[:, None], axis=1, kind="stable")[:, :k]
    rows = np.take_along_axis(rows, order, 1).ravel()
    return rows, np.take_along_axis(distances, order, 1).ravel()


def _note_lengths(read: Queries) -> None:
    """Prints a note if queries and rows differ in length; of a large file, rows from all parts.

    Codes of a compressed file have lengths of their own.
    """
    stored = read.file.stored
    if stored.compression is not None:
        return
    count = len(stored.embeddings)
    rows = np.linspace(0, count - 1, min(count, SAMPLE)).astype(int)
    vectors = np.concatenate([read.vectors, _numbers(stored.embeddings[rows])])
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    note = describe_lengths(lengths.min(), lengths.max())
    if note:
        print_plain(f"note: {note}", file=sys.stderr)


def _find_nearest(
    path: Path, points: np.ndarray, queries: np.ndarray, k: int, index: bool | str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the nearest k + 1 neighbors, or all, and their distances, Q×(k + 1)."""
    if not index:
        vectors = VectorRows(points.__getitem__, len(points))
        rows, distances = find_nearest(vectors, queries, min(k + 1, len(points)))
        return rows, distances.astype(queries.dtype)
    from dml.retrieval.file_index import AUTOMATIC, find_candidates  # faiss is optional

    kind = index if isinstance(index, str) else AUTOMATIC
    pool = find_candidates(path, points, queries, k, kind)
    vectors = VectorRows(points[pool].__getitem__, len(pool))
    places, distances = find_nearest(vectors, queries, min(k + 1, len(pool)))
    return pool[places], distances.astype(queries.dtype)


def _numbers(embeddings: np.ndarray) -> np.ndarray:
    """Returns embeddings as at least float32."""
    return embeddings.astype(np.float64 if embeddings.itemsize > 4 else np.float32)


def _find_row(query: str, file: SearchedFile, read_states: Callable[[], EmbeddedFiles]) -> int:
    """Returns the row of a query; −1 for an image that is not in the file, or has changed since."""
    if query.isdecimal() and not Path(query).exists():
        count = len(file.paths)
        if int(query) >= count:
            raise UserError(f"query: row {query} does not exist; the last one is {count - 1}")
        return int(query)
    paths = file.paths.read_all()
    alike = np.flatnonzero(np.char.endswith(paths, Path(query).name))
    target = _resolve(query)
    if target is None or not len(alike):
        return -1
    return _find_image(target, alike.tolist(), paths, read_states())


def _find_image(image: str, rows: Sequence[int], paths: np.ndarray, states: EmbeddedFiles) -> int:
    """Returns the row of an image; −1: none of them.

    Args:
        image: its path without links.
        rows: those with its file name.
        paths: of all rows.
        states: of all rows.
    """
    for row in rows:
        if _resolve(paths[row]) == image and _is_unchanged(image, row, states):
            return row
    for row in rows:  # in another current folder
        if _is_below_root(image, paths[row], row, states):
            return row
    return -1


def _is_unchanged(image: str, row: int, states: EmbeddedFiles) -> bool:
    """Returns whether an image is as it was when a row was embedded, as far as that is known."""
    if states.sizes is None or states.times is None:
        return True
    try:
        status = os.stat(image)
    except OSError:  # it is gone, or a part of a file; its row is there
        return True
    is_time = states.times[row] in (UNKNOWN, status.st_mtime_ns)
    return bool(states.sizes[row] == status.st_size and is_time)


def _is_below_root(image: str, path: str, row: int, states: EmbeddedFiles) -> bool:
    """Returns whether an image is that of a row: below its root, with its size and time.

    Args:
        image: its path without links.
        path: of the row, as seen from the folder in which it was embedded.
        row: its number.
        states: of the rows.
    """
    if states.roots is None or states.times is None or states.times[row] == UNKNOWN:
        return False
    (root,) = states.roots[[row]]
    folder = root if os.path.isdir(root) else os.path.dirname(root)
    if not image.startswith(os.path.join(folder, "")):
        return False
    below = os.path.relpath(image, folder)
    is_below = f"{os.sep}{path}".endswith(f"{os.sep}{below}")
    return is_below and os.path.exists(image) and _is_unchanged(image, row, states)


def _resolve(path: str) -> str | None:
    """Returns a path without links; None if no file can have such a name."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return None
