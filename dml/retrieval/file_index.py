"""The index of faiss of a file of embeddings: saved beside it, and known by its content."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.retrieval.exact.streamed_search import VectorRows, find_nearest

SAMPLE = 100  # rows that measure the recall of an index
ROWS_OF_A_LIST = 39  # faiss warns of fewer
PROBED = 32  # lists of an index that are searched
CHUNK = 65_536  # rows that are checked and hashed at once
KIND = b"IwFl"  # first bytes of faiss's files of the automatic kind
ZERO = re.compile(r"(?<!\d)0+(?!\d)")
GRAPH = re.compile(r"(?:HNSW|NSG)(\d+)")
FEWEST_LINKS = 4  # of a node of a graph: with one or two, faiss ends the process or never returns
MARK = b"dml-index-2\n"  # after the index: whose index it is
DIGEST = 32  # bytes
MEASURED = struct.Struct("<dq")  # recall, and the neighbors of each row by which it was estimated
TRAILER = len(MARK) + 2 * DIGEST + MEASURED.size
LARGEST = 1e18  # norm of an embedding, whose square float32 holds
MOST_NEW = 0.5  # of the rows: the lists of an index no longer fit more new ones
AUTOMATIC = "auto"  # lists of vectors as they are, as many as suit the number of rows


class FileIndex(NamedTuple):
    """An index of faiss.

    Attributes:
        index: of faiss.
        recall: estimated share of exact neighbors that it finds.
        neighbors: of each sampled row, by which it was estimated.
    """

    index: Any
    recall: float
    neighbors: int


def find_candidates(
    path: Path, points: np.ndarray, queries: np.ndarray, k: int, kind: str = AUTOMATIC
) -> np.ndarray:
    """Returns rows among which an index finds the neighbors of queries, in ascending order.

    The index is saved. The share of exact neighbors that it finds, estimated when it was built, is
    printed to stderr.

    Args:
        path: the file of the embeddings.
        points: its embeddings N×D.
        queries: Q×D.
        k: neighbors of each query.
        kind: a factory string of faiss, or "auto".

    Raises:
        UserError: faiss is not installed, has no such index or cannot build it, or an embedding is
            too large for it.
        ValueError: an embedding is not finite.
    """
    _check_range(queries, "query")
    opened = open_index(path, points, k, kind)
    if opened.neighbors:
        print_plain(
            f"the index finds {opened.recall:.1%} of exact neighbors, by up to {SAMPLE} rows and "
            f"their {opened.neighbors} nearest",
            file=sys.stderr,
        )
    with _described_errors(kind):
        rows = opened.index.search(np.array(queries, dtype=np.float32), k + 1)[1]
    # The first rows as well: an index may find fewer than k.
    return np.union1d(rows[rows >= 0], np.arange(min(k + 1, len(points))))


def index_path(path: Path) -> Path:
    """Returns the path of the index of a file of embeddings."""
    return path.with_name(f"{path.name}.faiss")


def open_index(path: Path, points: np.ndarray, k: int, kind: str = AUTOMATIC) -> FileIndex:
    """Returns the saved index of a file, or builds and saves it; see `find_candidates`."""
    if find_spec("faiss") is None:
        raise UserError("index: faiss is not installed: pip install faiss-cpu")
    _check_range(points, "embeddings")
    digest = _digest(points, kind)
    saved = index_path(path)
    opened = _read_index(saved, digest, points.shape)
    if opened is None:
        opened = _build_index(points, k, kind)
        _save_index(opened, saved, digest)
    return opened


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


def _digest(points: np.ndarray, kind: str = AUTOMATIC) -> bytes:
    """Returns a digest of shape, type and values of embeddings, and of the kind of an index."""
    hashed = hashlib.blake2b(f"{points.shape} {points.dtype.str}".encode(), digest_size=DIGEST)
    for start in range(0, len(points), CHUNK):
        hashed.update(np.ascontiguousarray(points[start : start + CHUNK]).tobytes())
    if kind != AUTOMATIC:
        hashed.update(kind.encode())
    return hashed.digest()


def _read_index(saved: Path, digest: bytes, shape: tuple[int, ...]) -> FileIndex | None:
    """Returns the saved index of embeddings; None if there is none, of others, or damaged.

    faiss reads what precedes the last bytes. These are what was measured, `MARK`, the digest of the
    embeddings, and that of index and measures. What is damaged never reaches faiss, which may crash
    on it.
    """
    if not saved.is_file():
        return None
    try:
        data = saved.read_bytes()
    except OSError:
        return None
    measured_end = len(data) - TRAILER + MEASURED.size
    if measured_end < MEASURED.size:
        return None
    check = hashlib.blake2b(data[:measured_end], digest_size=DIGEST).digest()
    if data[measured_end:] != MARK + digest + check:
        return None
    body, measured = data[:-TRAILER], data[-TRAILER:measured_end]
    import faiss

    try:
        index = faiss.deserialize_index(np.frombuffer(body, np.uint8))
    except RuntimeError:  # of another version of faiss
        return None
    if (index.ntotal, index.d) != shape:
        return None
    return FileIndex(index, *MEASURED.unpack(measured))


def move_index(path: Path, old: np.ndarray, old_rows: np.ndarray, points: np.ndarray) -> None:
    """Brings the saved index of a file to its new rows, without building it anew.

    Rows that were kept get their new numbers, and new ones are added to the lists that stand
    nearest to them. It stays as it is, and the next search builds another, if it is not of the old
    rows or of another kind than "auto", if most rows are new, or if faiss is not installed.

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
    opened = _read_index(saved, _digest(old), old.shape)
    if opened is None:
        return
    index = opened.index
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
        numbers = points[is_new].astype(np.float32)
        index.add_with_ids(numbers, np.flatnonzero(is_new))
    _save_index(opened, saved, _digest(points))


def _build_index(points: np.ndarray, k: int, kind: str) -> FileIndex:
    """Builds an index; see `find_candidates`."""
    # np.array gives the base class, not a memmap, which faiss's functions for torch refuse.
    known, count = np.array(points, dtype=np.float32), min(k + 1, len(points))
    index = _make_index(kind, known)
    sample = known[:: max(1, len(points) // SAMPLE)].copy()
    exact = find_nearest(VectorRows(known.__getitem__, len(known)), sample, count)[0][:, 1:]
    candidates = index.search(sample, count)[1]
    shares = list(map(np.isin, exact, candidates))
    recall = float(np.mean(shares)) if count > 1 else 1.0  # a single row has no neighbor
    return FileIndex(index, recall, count - 1)


def _make_index(kind: str, known: np.ndarray) -> Any:
    """Returns an index of vectors N×D, float32.

    Raises:
        UserError: faiss has no such index, or cannot build it.
    """
    import faiss

    lists = max(1, min(int(len(known) ** 0.5), len(known) // ROWS_OF_A_LIST))
    factory = f"IVF{lists},Flat" if kind == AUTOMATIC else kind
    if ZERO.search(factory):  # faiss ends the process for some
        raise UserError(f"index: '{kind}' has a number 0; give one above it")
    links = [int(number) for number in GRAPH.findall(factory)]
    if min(links, default=FEWEST_LINKS) < FEWEST_LINKS:
        raise UserError(f"index: '{kind}' has too few links; give {FEWEST_LINKS} or more")
    with _described_errors(kind):
        index: Any = faiss.index_factory(known.shape[1], factory)
        with suppress(RuntimeError):  # it has no lists
            faiss.extract_index_ivf(index).cp.min_points_per_centroid = 1  # else faiss warns
        index.train(known)
        index.add(known)
        with suppress(RuntimeError):  # it has no lists
            faiss.extract_index_ivf(index).nprobe = PROBED  # the file keeps it
        index.search(known[:1], 1)
    return index


@contextmanager
def _described_errors(kind: str) -> Iterator[None]:
    """Raises a UserError instead of an error of faiss inside the context."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rpartition(": ")[2]
        raise UserError(
            f"index: '{kind}' is no index of faiss for this file ({reason}); such as HNSW32, or "
            f"--index alone"
        ) from error
    except MemoryError as error:
        raise UserError(
            f"index: '{kind}' does not fit into memory; such as HNSW32, or --index alone"
        ) from error


def _save_index(opened: FileIndex, saved: Path, digest: bytes) -> None:
    """Saves an index, or prints why it is not saved; then the next search builds it again."""
    import faiss

    body = faiss.serialize_index(opened.index).tobytes()
    body += MEASURED.pack(opened.recall, opened.neighbors)
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
        if file.read(len(KIND)) == KIND:
            return True
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - TRAILER + MEASURED.size))
        return file.read(len(MARK)) == MARK
