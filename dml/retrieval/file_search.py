"""The search for images in a file of embeddings, by an index of faiss if the file is large."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.core.text_columns import plain_text_columns
from dml.retrieval.compressed_search import nearest_codes
from dml.retrieval.embedding_file import ImageEmbeddings, open_embeddings
from dml.retrieval.exact.near_pairs import MOST_PAIRS, NearPairs
from dml.retrieval.exact.order import squared_distances
from dml.retrieval.exact.search import nearest_neighbors

SAMPLE = 100  # rows that measure the recall of an index
PROBED = 32  # lists of an index that are searched
CHUNK = 65_536  # rows that are checked and hashed at once
KIND = b"IwFl"  # first bytes of faiss's files of this kind of index
MARK = b"dml-index-1\n"  # after the index: whose index it is
DIGEST = 32  # bytes
TRAILER = len(MARK) + 2 * DIGEST
LARGEST = 1e18  # norm of an embedding, whose square float32 holds
MOST_NEW = 0.5  # of the rows: the lists of an index no longer fit more new ones
PAIR_ROWS = 50  # nearest rows of each row that are its pairs in an approximate search
PAIR_SAMPLE = 200  # rows that estimate the share of pairs
QUERIES = 4096  # searched in an index at once
NEAR_ROUNDING = 1e-4  # of distances in float32; those within it are computed again
DUPLICATE = 1e-3  # largest distance, of the query's length 1: float16 has three digits


class Queries(NamedTuple):
    """Queries of a file of embeddings.

    Attributes:
        stored: the content of the file.
        files: Q paths.
        rows: Q rows of the file; −1: not in the file.
        vectors: Q×D embeddings, at least float32.
    """

    stored: ImageEmbeddings
    files: list[str]
    rows: np.ndarray
    vectors: torch.Tensor

    @property
    def labels(self) -> np.ndarray:
        """Q classes; None where the class is not known."""
        if self.stored.labels is None:
            return np.full(len(self.rows), None)
        labels = self.stored.labels.astype(object)[self.rows]
        labels[self.rows < 0] = None
        return labels


def read_queries(
    path: str | Path,
    queries: Sequence[str | Path | int],
    embed: Callable[[Sequence[str], ImageEmbeddings], np.ndarray],
) -> Queries:
    """Returns the queries with their embeddings; see `search_file`, whose arguments these are.

    Raises:
        UserError: the file cannot be read, a row does not exist, or embeddings differ in size.
    """
    stored = open_embeddings(path, decoded=False)
    query_rows = np.array([_find_row(str(query), stored) for query in queries])
    is_new = query_rows < 0
    names = list(map(str, queries))
    for number, row in enumerate(query_rows):
        if row >= 0:
            names[number] = stored.paths[row]
    vectors = _numbers(stored.decode(query_rows))
    if is_new.any():
        embedded = embed(list(np.array(names)[is_new]), stored)
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
        vectors[is_new] = _numbers(embedded).to(vectors.dtype)
    return Queries(stored, names, query_rows, vectors)


@plain_text_columns()
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
    read = read_queries(path, queries, embed)
    stored, vectors = read.stored, read.vectors
    rows, distances = find_neighbors(Path(path), stored, vectors, read.rows, k, index)
    labels = np.full(len(stored.paths), None)
    if stored.labels is not None:
        labels = stored.labels.astype(object)
    columns = {
        "query": np.repeat([str(query) for query in queries], k),
        "query_label": np.repeat(read.labels, k),
        "rank": np.tile(np.arange(1, k + 1), len(queries)),
        "distance": distances,
        "row": rows,
        "label": labels[rows],
        "path": stored.paths[rows],
        "duplicate": _are_duplicates(read, rows, distances, k),
    }
    return read.files, pd.DataFrame(columns)


def _are_duplicates(read: Queries, rows: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    """Returns whether the neighbors Q·k of queries have their embedding.

    Of a compressed file they have the query's code, up to rounding: the distance of a query to its
    own code is not 0.
    """
    vectors, compression = read.vectors.double().numpy(), read.stored.compression
    limits = DUPLICATE * np.linalg.norm(vectors, axis=1)
    if compression is not None and read.stored.has_codes:
        codes = compression.round_queries(read.vectors.numpy())
        rounded = compression.decode(codes).astype(np.float64)
        differences = read.stored.decode(rows) - np.repeat(rounded, k, axis=0)
        distances = np.linalg.norm(differences, axis=1)
        limits = limits + compression.largest_error
    return distances <= np.repeat(limits, k)


def find_neighbors(
    path: Path,
    stored: ImageEmbeddings,
    vectors: torch.Tensor,
    query_rows: np.ndarray,
    k: int,
    index: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the k nearest neighbors of each query, and their distances, Q·k each.

    Args:
        path: of the file.
        stored: its content.
        vectors: Q×D embeddings of the queries.
        query_rows: their rows, which are no neighbors of themselves; −1: not in the file.
        k: neighbors of each query.
        index: see `search_file`.

    Raises:
        UserError: k is too large, embeddings cannot be compared, or codes have no index.
    """
    is_new = query_rows < 0
    if index:
        stored.check_indexed(path)
    count = len(stored.embeddings)
    available = count if is_new.all() else count - 1
    if not 1 <= k <= available:
        raise UserError(
            f"k: {k} is not between 1 and {available}, the images that a query can find"
        )
    try:
        if stored.compression is not None and stored.has_codes:
            queries, codes = vectors.numpy(), stored.embeddings
            near = nearest_codes(stored.compression, queries, codes, min(k + 1, count))
        else:
            near = _find_nearest(path, stored.embeddings, vectors, k, index)
    except ValueError as error:
        raise UserError(f"embeddings: {path}: {error}") from error
    rows, distances = near
    # A stable sort leaves all in their order, except for the query itself.
    order = np.argsort(rows == query_rows[:, None], axis=1, kind="stable")[:, :k]
    rows = np.take_along_axis(rows, order, 1).ravel()
    return rows, np.take_along_axis(distances, order, 1).ravel()


def _find_nearest(
    path: Path, points: np.ndarray, vectors: torch.Tensor, k: int, index: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the nearest k + 1 neighbors, or all, and their distances, Q×(k + 1)."""
    pool: Any = slice(None)
    if index:
        pool = _find_candidates(path, points, vectors, k)
    numbers, rows = _numbers(points[pool]), np.arange(len(points))[pool]
    neighbors = nearest_neighbors(vectors, numbers, k=min(k + 1, len(numbers)))
    indices = neighbors.indices.numpy()  # a tensor of one number would give a number
    return rows[indices], neighbors.distances.numpy()


def _numbers(embeddings: np.ndarray) -> torch.Tensor:
    """Returns embeddings as at least float32, copied if they are in another form on the disk."""
    dtype = np.float64 if embeddings.itemsize > 4 else np.float32
    return torch.from_numpy(embeddings.astype(dtype, copy=not embeddings.flags.writeable))


def _find_row(query: str, stored: ImageEmbeddings) -> int:
    """Returns the row of a query; −1 for an image that is not in the file."""
    if query.isdecimal() and not Path(query).exists():
        count = len(stored.paths)
        if int(query) >= count:
            raise UserError(f"query: row {query} does not exist; the last one is {count - 1}")
        return int(query)
    alike = np.flatnonzero(np.char.endswith(stored.paths, Path(query).name))
    target = _resolve(query)
    for row in alike:
        if target is not None and _resolve(stored.paths[row]) == target:
            return int(row)
    return -1


def _resolve(path: str) -> str | None:
    """Returns a path without links; None if no file can have such a name."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return None


def _find_candidates(path: Path, points: np.ndarray, queries: torch.Tensor, k: int) -> np.ndarray:
    """Returns rows among which an index finds the neighbors of queries, in ascending order.

    The index is saved. Building it prints the share of exact neighbors that it finds to stderr.

    Args:
        path: the file of the embeddings.
        points: its embeddings N×D.
        queries: Q×D.
        k: neighbors of each query.

    Raises:
        UserError: faiss is not installed, or an embedding is too large for it.
        ValueError: an embedding is not finite.
    """
    _check_range(queries.numpy(), "query")
    index = _open_index(path, points, k)
    rows = index.search(queries.float().numpy(), k + 1)[1]
    # The first rows as well: an index may find fewer than k.
    return np.union1d(rows[rows >= 0], np.arange(min(k + 1, len(points))))


def index_path(path: Path) -> Path:
    """Returns the path of the index of a file of embeddings."""
    return path.with_name(f"{path.name}.faiss")


def _open_index(path: Path, points: np.ndarray, k: int) -> Any:
    """Returns the saved index of a file, or builds and saves it; see `_find_candidates`."""
    if find_spec("faiss") is None:
        raise UserError("index: faiss is not installed: pip install faiss-cpu")
    _check_range(points, "embeddings")
    digest = _digest(points)
    saved = index_path(path)
    index = _read_index(saved, digest, points.shape)
    if index is None:
        index = _build_index(points, k)
        _save_index(index, saved, digest)
    return index


def approximate_pairs(
    path: Path, points: np.ndarray, limit: float
) -> tuple[NearPairs, float | None]:
    """Returns pairs of rows within a distance that an index finds, and their estimated share.

    The index is that of `search_file`, which is saved. Each row is compared with its `PAIR_ROWS`
    nearest rows in it, and distances are computed in float64.

    Args:
        path: the file of the embeddings.
        points: its embeddings N×D.
        limit: largest Euclidean distance.

    Returns:
        The pairs, and the share of the pairs of sampled rows that is among them; None if these rows
        have no pair.

    Raises:
        UserError: faiss is not installed, or an embedding is too large for it.
        ValueError: an embedding is not finite.
    """
    index = _open_index(path, points, PAIR_ROWS)
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


def _check_range(numbers: np.ndarray, name: str) -> None:
    """Checks that squared distances are finite in float32; faiss ends the process otherwise.

    Raises:
        UserError: an embedding is too large.
        ValueError: one is not finite.
    """
    largest = 0.0
    for start in range(0, len(numbers), CHUNK):
        part = np.abs(numbers[start : start + CHUNK].astype(np.float64))
        if not np.isfinite(part).all():
            raise ValueError(f"{name}: values that are NaN or infinite; leave out these rows")
        largest = max(largest, float(part.max(initial=0)))
    if largest > LARGEST / numbers.shape[1] ** 0.5:
        raise UserError(
            f"index: {name} with values of {largest:.0e} are too large for faiss; search without "
            f"an index, or divide the embeddings by a number"
        )


def _digest(points: np.ndarray) -> bytes:
    """Returns a digest of shape, type and values of embeddings: of the content, not of the file."""
    hashed = hashlib.blake2b(f"{points.shape} {points.dtype.str}".encode(), digest_size=DIGEST)
    for start in range(0, len(points), CHUNK):
        hashed.update(np.ascontiguousarray(points[start : start + CHUNK]).tobytes())
    return hashed.digest()


def _read_index(saved: Path, digest: bytes, shape: tuple[int, ...]) -> Any:
    """Returns the saved index of embeddings; None if there is none, of others, or damaged.

    faiss reads what precedes the last bytes, which are `MARK`, the digest of the embeddings, and
    the digest of what precedes. What is damaged never reaches faiss, which may crash on it.
    """
    if not saved.is_file():
        return None
    try:
        data = saved.read_bytes()
    except OSError:
        return None
    body, mark = data[:-TRAILER], data[-TRAILER:]
    if mark != MARK + digest + hashlib.blake2b(body, digest_size=DIGEST).digest():
        return None
    import faiss

    try:
        index = faiss.deserialize_index(np.frombuffer(body, np.uint8))
    except RuntimeError:  # of another version of faiss
        return None
    if (index.ntotal, index.d) != shape:
        return None
    return index


def move_index(path: Path, old: np.ndarray, old_rows: np.ndarray, points: np.ndarray) -> None:
    """Brings the saved index of a file to its new rows, without building it anew.

    Rows that were kept get their new numbers, and new ones are added to the lists that stand
    nearest to them. It stays as it is, and the next search builds another, if it is not of the old
    rows, if most rows are new, or if faiss is not installed.

    Args:
        path: the file of embeddings, with its new content.
        old: embeddings N×D that the index is of.
        old_rows: for each row of the file its old row; −1: it is new.
        points: its embeddings M×D.
    """
    saved = index_path(path)
    is_new = old_rows < 0
    if not saved.is_file() or find_spec("faiss") is None:
        return
    index = _read_index(saved, _digest(old), old.shape)
    if index is None:
        return
    if is_new.mean() > MOST_NEW:
        text = "note: index: most rows are new; the next search with --index builds it anew"
        print_plain(text, file=sys.stderr)
        return
    _check_range(points, "embeddings")
    import faiss

    new_row = np.full(len(old), -1, np.int64)
    new_row[old_rows[~is_new]] = np.flatnonzero(~is_new)
    lists = index.invlists
    width = index.code_size
    moved: Any = faiss.ArrayInvertedLists(index.nlist, width)
    for number in range(index.nlist):
        size = lists.list_size(number)
        if not size:
            continue
        ids = new_row[faiss.rev_swig_ptr(lists.get_ids(number), size)]
        codes = faiss.rev_swig_ptr(lists.get_codes(number), size * width).reshape(size, width)
        is_kept = ids >= 0
        kept, content = ids[is_kept].copy(), codes[is_kept].copy()
        if len(kept):
            pointers = faiss.swig_ptr(kept), faiss.swig_ptr(content)
            moved.add_entries(number, len(kept), *pointers)
    index.replace_invlists(moved, True)
    moved.this.disown()
    index.ntotal = int((~is_new).sum())
    if is_new.any():
        numbers = _numbers(points[is_new]).float().numpy()
        index.add_with_ids(numbers, np.flatnonzero(is_new))
    _save_index(index, saved, _digest(points))


def _build_index(points: np.ndarray, k: int) -> Any:
    import faiss

    known, count = _numbers(points).float().numpy(), min(k + 1, len(points))
    lists = max(1, min(int(len(points) ** 0.5), len(points) // 39))  # faiss warns of fewer a list
    index: Any = faiss.index_factory(known.shape[1], f"IVF{lists},Flat")
    index.nprobe = PROBED  # the file keeps it
    index.train(known)
    index.add(known)
    sample = known[:: max(1, len(points) // SAMPLE)].copy()
    pair = torch.from_numpy(sample), torch.from_numpy(known)
    exact = nearest_neighbors(*pair, k=count).indices[:, 1:]
    candidates = index.search(sample, count)[1]
    shares = list(map(np.isin, exact, candidates))
    print_plain(f"the index finds {np.mean(shares):.1%} of exact neighbors", file=sys.stderr)
    return index


def _save_index(index: Any, saved: Path, digest: bytes) -> None:
    """Saves an index, or prints why it is not saved; then the next search builds it again."""
    import faiss

    body = faiss.serialize_index(index).tobytes()
    check = hashlib.blake2b(body, digest_size=DIGEST).digest()
    try:
        if saved.exists() and not _is_index(saved):
            raise FileExistsError(errno.EEXIST, "is no index")
        with replace_file(saved) as temporary:
            temporary.write_bytes(body + MARK + digest + check)
    except OSError as error:
        print_plain(
            f"note: index: {saved}: {error.strerror}; it is not saved, and the next search builds "
            f"it again",
            file=sys.stderr,
        )


def _is_index(saved: Path) -> bool:
    """Returns whether a file is an index as they are built here, be it damaged or of others."""
    if not saved.is_file():
        return False
    with open(saved, "rb") as file:
        return file.read(len(KIND)) == KIND
